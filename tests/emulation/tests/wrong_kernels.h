// Kernels with one mistake each. Each call queues one launch; x and y hold at least 64 floats
// unless said otherwise.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

namespace lab::emulation {

// Barriers and warps.
void barrier_in_a_branch();
void leaves_before_the_barrier(int n);  // threads from n on leave
void two_barriers();
void lane_never_shuffles();
void lane_left_before_shuffle();
void mask_without_the_caller();
void reads_lane_outside_the_mask();
void mask_beyond_the_block();
void shuffle_meets_vote();
void width_is_no_power_of_two();

// Races.
void no_barrier_after_writing(const float* x, float* y);
void no_barrier_before_writing(const float* x, float* y);
void shuffle_instead_of_syncwarp(const float* x, float* y);
void half_a_syncwarp(const float* x, float* y);
void all_write_one_word(float* y);
void atomic_and_plain(int* y);
void blocks_write_one_word(float* y);
void block_reads_another_blocks_word(float* y);
void races_on_bfloat16(const __nv_bfloat16* x, __nv_bfloat16* y);
void races_on_returned_struct(const float* x, float* y);
void races_on_given_struct(const float* x, float* y);

// Bounds and what was never written.
void past_static_array(float* y, int index);
void past_array_of_template(float* y, int index);
void past_dynamic_array(float* y, int index);
void copies(const float* x, float* y, int n);  // is right if both have n floats
void copies_fours(const float* x, float* y);   // four floats at once
void writes_at(float* y, int index);
void reads_unwritten_shared(float* y);
void reads_shared_of_former_block(float* y);
void writes_host_variable();

/// Host code that reads through a pointer.
float read_on_host(const float* x);

}  // namespace lab::emulation
