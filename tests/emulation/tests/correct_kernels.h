// Kernels without mistakes, and what each computes. Each call queues one launch.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

namespace lab::emulation {

/// y[row] = sum of the row of x [rows, width]; a block a row.
void row_sums(const float* x, float* y, int rows, int width, int threads);
/// y [columns, rows] from x [rows, columns], through tiles in shared memory.
void transpose(const float* x, float* y, int rows, int columns);
/// counts[v] += 1 for each of the values, 0 to 15.
void histogram(const int* values, int* counts, int n);
/// y[i] = x[0] + .. + x[i], n at most 1024, in dynamic shared memory.
void prefix_sums(const float* x, float* y, int n);
/// y[i] = x[i ^ 1], through shared memory and __syncwarp; 64 values.
void swap_neighbours(const float* x, float* y);
/// Eight results of warp operations for each of 32 lanes: y[8 * lane + i].
void warp_results(int* y);
/// y[0] = sum of x; the block that comes last adds up. Scratch: blocks floats and a counter of 0.
void sum_by_last_block(const float* x, float* scratch, unsigned* counter, float* y, int n,
                       int blocks);
/// y = x rounded to bfloat16, one element a thread.
void to_bfloat16(const float* x, __nv_bfloat16* y, int n);
/// y = scale * x + shift, four elements a thread; n a multiple of 4.
struct Affine {
  const float* x;
  float* y;
  float scale;
  float shift;
};
void affine(Affine task, int n);
/// y[0], y[1], y[2] = how many of x > 0, whether any is, whether all are; one block.
void signs(const float* x, int* y, int n);
/// y[i] = 2 times the sum of 64 x, plus 32; structs in shared memory, given to functions and got
/// from them.
void struct_sums(const float* x, float* y);
/// y[i] = the i-th of five constants; shared bfloat16 in the middle.
void constants(float* y);

}  // namespace lab::emulation
