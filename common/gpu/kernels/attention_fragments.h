// Products of attention on tensor cores. Each warp works on 16 rows of the left factor and of the
// result, whose fragments (tensor_core.h) stay in its registers. Fragment n of a result holds
// columns 8 n to 8 n + 7.
//
// Tiles are read in blocks of 16 x 16. Each lane gives the address of the same place in every
// block, so that its four quarters are 0: upper left, 1: lower left, 2: upper right, 3: lower
// right. That is an A. It is also two B side by side: quarters (0, 2) and (1, 3) if the tile's rows
// are the columns of B; (0, 1) and (2, 3) if they are its rows and the quarters were loaded
// transposed.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <cstring>

#include "common/gpu/cuda/context.h"
#include "common/gpu/cuda/launch.h"
#include "common/gpu/kernels/bfloat16_tiles.h"
#include "common/gpu/kernels/tensor_core.h"

namespace lab::cuda {

constexpr int kBlock = 16;   // rows and columns of a block, rows of a warp
constexpr int kQuarter = 8;  // rows and columns of a quarter, columns of a fragment of a result
constexpr int kNumbers = 4;  // of a fragment of a result in a lane

/// The place of a lane's first number in a fragment of a result.
__device__ inline int lane_row() { return lane() / 4; }
__device__ inline int lane_column() { return lane() % 4 * 2; }
/// The place of number e of fragment n in the result.
__device__ inline int row_of(int e) { return lane_row() + e / 2 * kQuarter; }
__device__ inline int column_of(int n, int e) { return n * kQuarter + lane_column() + e % 2; }

/// Numbers of a result become `value` where is(row, column).
template <int kN, typename Is>
__device__ void fill_where(float (&result)[kN][kNumbers], float value, const Is& is) {
#pragma unroll
  for (int n = 0; n < kN; ++n)
#pragma unroll
    for (int e = 0; e < kNumbers; ++e)
      if (is(row_of(e), column_of(n, e))) result[n][e] = value;
}

/// The beginning of the row that the calling lane addresses in the block of a tile at
/// [row][column].
template <int kHeadDim>
__device__ const __nv_bfloat16* row_of_lane(const __nv_bfloat16* tile, int row, int column) {
  return tile + (row + lane() % kBlock) * kPitch<kHeadDim> + column + lane() / kBlock * kQuarter;
}

/// The 16 rows of a tile from which a warp makes its rows of products. They are kept in registers
/// or, if these are scarce, read again each time.
template <int kHeadDim, bool kKept>
class LeftFactor {
 public:
  static constexpr int kBlocks = kHeadDim / kBlock;

  /// `rows`: the first of them in shared memory.
  __device__ explicit LeftFactor(const __nv_bfloat16* rows) : rows_(rows) {
    if constexpr (kKept) {
#pragma unroll
      for (int i = 0; i < kBlocks; ++i)
        load_matrices(kept_[i], row_of_lane<kHeadDim>(rows, 0, i * kBlock));
    }
  }

  /// Columns [16 i, 16 i + 16) as A.
  __device__ void block(int i, uint32_t (&a)[4]) const {
    if constexpr (kKept) {
#pragma unroll
      for (int r = 0; r < 4; ++r) a[r] = kept_[i][r];
    } else {
      load_matrices(a, row_of_lane<kHeadDim>(rows_, 0, i * kBlock));
    }
  }

 private:
  const __nv_bfloat16* rows_;
  uint32_t kept_[kKept ? kBlocks : 1][4];
};

/// product = the left factor times the transpose of a tile, whose 8 kN rows become columns.
template <int kHeadDim, bool kKept, int kN>
__device__ void multiply(const LeftFactor<kHeadDim, kKept>& left, const __nv_bfloat16* tile,
                         float (&product)[kN][kNumbers]) {
#pragma unroll
  for (int n = 0; n < kN; ++n)
#pragma unroll
    for (int e = 0; e < kNumbers; ++e) product[n][e] = 0.0F;
#pragma unroll
  for (int i = 0; i < kHeadDim / kBlock; ++i) {
    uint32_t a[4];
    left.block(i, a);
#pragma unroll
    for (int n = 0; n < kN; n += 2) {
      uint32_t quarters[4];
      load_matrices(quarters, row_of_lane<kHeadDim>(tile, n * kQuarter, i * kBlock));
      mma_16x8x16(product[n], a, quarters[0], quarters[2]);
      mma_16x8x16(product[n + 1], a, quarters[1], quarters[3]);
    }
  }
}

/// Two numbers rounded to bfloat16, in a register.
__device__ inline uint32_t rounded(float low, float high) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  uint32_t bits;
  std::memcpy(&bits, &pair, sizeof(bits));
  return bits;
}

/// sum += weights, rounded, times a tile that has as many rows as the weights have columns.
template <int kHeadDim, int kN>
__device__ void accumulate(const float (&weights)[kN][kNumbers], const __nv_bfloat16* tile,
                           float (&sum)[kHeadDim / kQuarter][kNumbers]) {
#pragma unroll
  for (int k = 0; k < kN; k += 2) {
    const float(&left)[kNumbers] = weights[k];
    const float(&right)[kNumbers] = weights[k + 1];
    const uint32_t a[4] = {rounded(left[0], left[1]), rounded(left[2], left[3]),
                           rounded(right[0], right[1]), rounded(right[2], right[3])};
#pragma unroll
    for (int n = 0; n < kHeadDim / kQuarter; n += 2) {
      uint32_t quarters[4];
      load_matrices_transposed(quarters, row_of_lane<kHeadDim>(tile, k * kQuarter, n * kQuarter));
      mma_16x8x16(sum[n], a, quarters[0], quarters[1]);
      mma_16x8x16(sum[n + 1], a, quarters[2], quarters[3]);
    }
  }
}

/// Writes a warp's 16 rows, times a factor for each of the lane's two, starting at row `first` of
/// the head. `space`: 16 rows of a tile that no other warp uses any more; they bring neighbouring
/// elements together.
template <int kHeadDim>
__device__ void store_rows(const float (&sum)[kHeadDim / kQuarter][kNumbers],
                           const float (&factors)[2], __nv_bfloat16* space,
                           const Bfloat16Head& head, int64_t first) {
  __syncwarp();
#pragma unroll
  for (int n = 0; n < kHeadDim / kQuarter; ++n)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      __nv_bfloat16* to =
          space + (lane_row() + half * kQuarter) * kPitch<kHeadDim> + n * kQuarter + lane_column();
      *reinterpret_cast<__nv_bfloat162*>(to) = __floats2bfloat162_rn(
          sum[n][2 * half] * factors[half], sum[n][2 * half + 1] * factors[half]);
    }
  __syncwarp();
  store_tile<kBlock, kHeadDim>(space, head, first);
}

/// The same as with_block_rows, in warps of 16 rows: run.operator()<kHeadDim, kWarps>().
template <typename Run>
void with_block_size(const Context& context, int64_t rows, int64_t heads, int64_t head_dim,
                     const Run& run) {
  with_block_rows(context, rows, heads, head_dim, [&]<int kHeadDim, int kRows>() {
    run.template operator()<kHeadDim, kRows / kBlock>();
  });
}

}  // namespace lab::cuda
