// Kernels that use tensor cores: correct ones, and some with one mistake each. Each call queues one
// launch of a warp.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

namespace lab::emulation {

/// d [16, 8] += a [16, 16] b [16, 8], row by row.
void multiply_blocks(const __nv_bfloat16* a, const __nv_bfloat16* b, float* d);
/// d [16, 8] += a [16, 16] b [16, 8] with a and b read through shared memory; `transposed`: b is
/// given as [8, 16].
void multiply_shared_blocks(const __nv_bfloat16* a, const __nv_bfloat16* b, float* d,
                            bool transposed);
/// What lane l gets of four matrices [8, 8], one after the other: y[8 l + 2 i] and y[8 l + 2 i + 1]
/// of the i-th.
void load_four(const __nv_bfloat16* x, __nv_bfloat16* y, bool transposed);

// Mistakes. x: 256 elements.
void lane_never_multiplies();
void multiplies_at_two_places();
void multiplies_in_part_of_a_warp();  // of 20 threads
void load_meets_transposed_load(const __nv_bfloat16* x);
void row_is_not_aligned(const __nv_bfloat16* x);
void row_in_device_memory(const __nv_bfloat16* x);
void row_past_shared_memory(const __nv_bfloat16* x);
void row_never_written(const __nv_bfloat16* x);
void row_written_by_other_lane(const __nv_bfloat16* x);
void row_written_too_early(const __nv_bfloat16* x);

}  // namespace lab::emulation
