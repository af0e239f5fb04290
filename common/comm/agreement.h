// Decisions that all ranks of a group make together.
#pragma once

#include "common/comm/process_group.h"

namespace lab {

/// Whether `mine` is true on every rank of the group; the answer is the same on all of them. What
/// one rank alone learns (Ctrl-C, a full disk) must not make it leave a loop in which others wait
/// for it.
inline bool all_true(ProcessGroup& group, bool mine) {
  const Tensor vote = Tensor::from({mine ? 1.0F : 0.0F}, {1});
  group.all_reduce(vote, ReduceOp::kMin);
  return vote.data()[0] != 0.0F;
}

}  // namespace lab
