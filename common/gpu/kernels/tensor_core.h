// Tensor cores: with one instruction, a warp multiplies two small matrices.
//
//   mma_16x8x16:  D += A B,  A [16 x 16] and B [16 x 8] of bfloat16, D [16 x 8] of float32.
//
// The matrices are in registers, and each of the warp's 32 lanes holds a part of them, its
// "fragment". Which elements these are is fixed by the hardware (PTX ISA, "Matrix Fragments for
// mma.m16n8k16 with floating point type"). Lane l is number t = l % 4 in group g = l / 4:
//
//   A  a[0] = A[g][2t]   A[g][2t+1]      a[2] = A[g][2t+8]   A[g][2t+9]
//      a[1] = A[g+8][2t] A[g+8][2t+1]    a[3] = A[g+8][2t+8] A[g+8][2t+9]
//   B  b_upper = B[2t][g] B[2t+1][g]     b_lower = B[2t+8][g] B[2t+9][g]
//   D  d[0] = D[g][2t]   d[1] = D[g][2t+1]   d[2] = D[g+8][2t]   d[3] = D[g+8][2t+1]
//
// A register of A or B holds two elements, the first in its lower half. Of D, these lanes hold the
// 8 columns of a row, from left to right:
//
//   row 0:  lane 0  lane 0  lane 1  lane 1  lane 2  lane 2  lane 3  lane 3
//   row 1:  lane 4  lane 4  lane 5  lane 5  lane 6  lane 6  lane 7  lane 7
//   ...
//   row 8:  lane 0  lane 0  lane 1  lane 1  ...
//
// Kernels make use of two consequences. Four adjacent lanes hold a whole row of D: its sum takes
// two shuffles. And two D side by side, rounded to bfloat16, are laid out exactly like an A: a
// product can be the left factor of the next one without leaving its lanes.
//
// load_matrices fills such registers from shared memory (PTX ISA, "ldmatrix"): four matrices of 8 x
// 8; lane l gives the address of row l % 8 of matrix l / 8. Afterwards each lane has in matrices[i]
// the elements [g][2t] and [g][2t+1] of matrix i; after load_matrices_transposed [2t][g] and
// [2t+1][g]. A row is 8 elements and must begin at a multiple of 16 bytes.
//
// All lanes of a warp must reach the same call.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace lab::cuda {

#ifdef __CUDACC__

/// d += a b.
__device__ inline void mma_16x8x16(float (&d)[4], const uint32_t (&a)[4], uint32_t b_upper,
                                   uint32_t b_lower) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b_upper), "r"(b_lower));
}

/// `row`: the row that the calling lane addresses, in shared memory.
__device__ inline void load_matrices(uint32_t (&matrices)[4], const void* row) {
  const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(matrices[0]), "=r"(matrices[1]), "=r"(matrices[2]), "=r"(matrices[3])
               : "r"(address)
               : "memory");
}

__device__ inline void load_matrices_transposed(uint32_t (&matrices)[4], const void* row) {
  const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(matrices[0]), "=r"(matrices[1]), "=r"(matrices[2]), "=r"(matrices[3])
               : "r"(address)
               : "memory");
}

#else

using emulation::load_matrices;
using emulation::load_matrices_transposed;
using emulation::mma_16x8x16;

#endif

}  // namespace lab::cuda
