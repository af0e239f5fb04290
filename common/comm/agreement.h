// What all ranks of a group decide, add up or learn together.
#pragma once

#include <cstring>
#include <numeric>
#include <vector>

#include "common/comm/process_group.h"
#include "common/tensor/tensor.h"

namespace lab {

/// A double as a message, since tensors hold floats: its bits as two of them, [2].
inline Tensor as_tensor(double number) {
  Tensor tensor = Tensor::empty({2});
  std::memcpy(tensor.data(), &number, sizeof number);
  return tensor;
}

/// The double whose bits begin at `floats`.
inline double as_double(const float* floats) {
  double number = 0.0;
  std::memcpy(&number, floats, sizeof number);
  return number;
}

/// Whether `mine` is true on every rank of the group; all get the same answer. An event that only
/// one rank sees (Ctrl-C, a full disk) must not make it leave a loop in which others wait for it.
inline bool all_true(ProcessGroup& group, bool mine) {
  const Tensor vote = Tensor::from({mine ? 1.0F : 0.0F}, {1});
  group.all_reduce(vote, ReduceOp::kMin);
  return vote.data()[0] != 0.0F;
}

/// The largest of all ranks' numbers, on every rank. A float must hold each of them exactly.
inline int largest(ProcessGroup& group, int mine) {
  const Tensor number = Tensor::from({static_cast<float>(mine)}, {1});
  group.all_reduce(number, ReduceOp::kMax);
  return static_cast<int>(number.data()[0]);
}

/// All ranks' numbers, in their order, on every rank. One all_gather of 8 bytes.
inline std::vector<double> all_numbers(ProcessGroup& group, double mine) {
  const Tensor all = Tensor::empty({group.size(), 2});
  group.all_gather(all, as_tensor(mine));
  std::vector<double> numbers;
  for (int rank = 0; rank < group.size(); ++rank)
    numbers.push_back(as_double(all.data() + 2 * rank));
  return numbers;
}

/// The sum of all ranks' numbers, with the same bits on every rank: in double precision, added in
/// the order of the ranks. In a group of one rank, no message.
inline double sum_over(ProcessGroup& group, double mine) {
  if (group.size() == 1) return mine;
  const std::vector<double> all = all_numbers(group, mine);
  return std::accumulate(all.begin(), all.end(), 0.0);
}

/// Gives every rank the number of the last stage (the last rank of `pipeline`), bit for bit; for
/// instance the loss. One broadcast of 8 bytes; with one stage, no message.
inline double from_last_stage(double number, ProcessGroup& pipeline) {
  const Tensor parcel = as_tensor(number);
  if (pipeline.size() > 1) pipeline.broadcast(parcel, pipeline.size() - 1);
  return as_double(parcel.data());
}

}  // namespace lab
