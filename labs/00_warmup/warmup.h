// Lab 00 · warm-up: views, ranks, messages. This is the contract; you write warmup.cpp.
//
// All tensors are float32 and contiguous, and there are at least 2 ranks.
#pragma once

#include <cstdint>
#include <string>

#include "common/comm/process_group.h"
#include "common/tensor/tensor.h"

namespace lab00 {

/// Exercise 1 · The second half of the rows.
///
/// `batch` [B, T], B even. Returns [B/2, T]: a *view*, not a copy. Writing through it writes the
/// batch.
lab::Tensor second_half(const lab::Tensor& batch);

/// Exercise 1 · Sets one column of `batch` [B, T] to `value`, and nothing else. 0 <= column < T.
void set_column(const lab::Tensor& batch, int64_t column, float value);

/// Exercise 2 · Returns "rank 1 of 3": the rank of this process, counted from 0, and the world
/// size.
std::string who_am_i(const lab::ProcessGroup& world);

/// Exercise 3 · Rank 0 sends its numbers to rank 1.
///
/// `tensor` has the same shape on all ranks. Rank 1's tensor receives rank 0's numbers; all other
/// ranks keep theirs, including rank 0. On return no message is pending.
void hand_over(lab::ProcessGroup& world, const lab::Tensor& tensor);

/// Exercise 4 · The mean of all ranks' values: their sum, divided by the world size. Every rank
/// returns the same result.
float mean_over_ranks(lab::ProcessGroup& world, float value);

/// Exercise 5 · All ranks form a ring: each sends to its right neighbour, rank + 1, and receives
/// from its left neighbour, rank - 1. The last rank's right neighbour is rank 0.
///
/// `outgoing`: what this rank sends; it keeps its numbers. `incoming`: same shape, separate memory;
/// on return it holds what the left neighbour sent. Must finish with any world size of 2 or more,
/// even though a send waits for its recv. On return no message of this rank is still pending.
void pass_right(lab::ProcessGroup& world, const lab::Tensor& outgoing, const lab::Tensor& incoming);

}  // namespace lab00
