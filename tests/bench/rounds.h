// How long something takes on all ranks, in rounds.
#pragma once

#include <algorithm>
#include <chrono>
#include <vector>

#include "common/comm/process_group.h"

namespace lab::bench {

/// Of one call on all ranks: from a common start to the end on the slowest.
template <typename Call>
double seconds(ProcessGroup& world, const Call& call) {
  world.barrier();
  const std::chrono::steady_clock::time_point start = std::chrono::steady_clock::now();
  call();
  const Tensor time = Tensor::from(
      {static_cast<float>(
          std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count())},
      {1});
  world.all_reduce(time, ReduceOp::kMax);
  return time.data()[0];
}

inline double median(std::vector<double> values) {
  std::ranges::nth_element(values, values.begin() + static_cast<ptrdiff_t>(values.size() / 2));
  return values[values.size() / 2];
}

}  // namespace lab::bench
