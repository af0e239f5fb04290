// What all ranks of a group decide, add up or learn together.
#pragma once

#include "common/comm/double_tensor.h"
#include "common/comm/process_group.h"

namespace lab {

/// Whether `mine` is true on every rank of the group; all get the same answer. An event that only
/// one rank sees (Ctrl-C, a full disk) must not make it leave a loop in which others wait for it.
inline bool all_true(ProcessGroup& group, bool mine) {
  const Tensor vote = Tensor::from({mine ? 1.0F : 0.0F}, {1});
  group.all_reduce(vote, ReduceOp::kMin);
  return vote.data()[0] != 0.0F;
}

/// The largest of all ranks' numbers, which a float holds exactly, on every rank.
inline int largest(ProcessGroup& group, int mine) {
  const Tensor number = Tensor::from({static_cast<float>(mine)}, {1});
  group.all_reduce(number, ReduceOp::kMax);
  return static_cast<int>(number.data()[0]);
}

/// The sum of all ranks' numbers, with the same bits on every rank: in double precision, added in
/// the order of the ranks. One all_gather of 8 bytes; in a group of one rank, no message.
inline double sum_over(ProcessGroup& group, double mine) {
  if (group.size() == 1) return mine;
  const Tensor all = Tensor::empty({group.size(), 2});
  group.all_gather(all, as_tensor(mine));
  double sum = 0.0;
  for (int rank = 0; rank < group.size(); ++rank) sum += as_double(all.data() + 2 * rank);
  return sum;
}

/// The number of the last stage, the last rank of `pipeline`, on every rank, to the last bit: for
/// instance the loss. One broadcast of 8 bytes; with one stage, no message.
inline double from_last_stage(double number, ProcessGroup& pipeline) {
  const Tensor parcel = as_tensor(number);
  if (pipeline.size() > 1) pipeline.broadcast(parcel, pipeline.size() - 1);
  return as_double(parcel.data());
}

}  // namespace lab
