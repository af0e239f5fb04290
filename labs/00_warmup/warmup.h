// Lab 00 · warm-up: views, ranks, messages. This is the contract; you write warmup.cpp.
#pragma once

#include <cstdint>
#include <string>

#include "common/comm/process_group.h"
#include "common/tensor/tensor.h"

namespace lab00 {

/// Exercise 1 · The second half of the rows.
///
/// `batch` [B, T], B even. Returns [B/2, T]: a *view*, no copy. Whoever writes into it writes into
/// the batch.
lab::Tensor second_half(const lab::Tensor& batch);

/// Exercise 1 · Sets one column of `batch` [B, T] to `value`, and nothing else. 0 <= column < T.
void set_column(const lab::Tensor& batch, int64_t column, float value);

/// Exercise 2 · "rank 1 of 3": the rank of this process, counted from 0, and the world size.
std::string who_am_i(const lab::ProcessGroup& world);

/// Exercise 3 · Rank 0 hands its numbers to rank 1.
///
/// `tensor` has the same shape on all ranks. Rank 1's gets the numbers of rank 0's; all others keep
/// theirs, rank 0 included.
void hand_over(lab::ProcessGroup& world, const lab::Tensor& tensor);

/// Exercise 4 · The mean of every rank's `value`; all ranks get the same result.
float mean_over_ranks(lab::ProcessGroup& world, float value);

/// Exercise 5 · All ranks stand in a ring: each gives to its right neighbour, rank + 1, and takes
/// from its left one, rank - 1; the last rank's right neighbour is rank 0.
///
/// `outgoing`: what this rank gives; it keeps its numbers. `incoming`: same shape, memory of its
/// own; on return it holds what the left neighbour gave. Must come to an end with any world size
/// from 2 on, although a send waits for its recv.
void pass_right(lab::ProcessGroup& world, const lab::Tensor& outgoing, const lab::Tensor& incoming);

}  // namespace lab00
