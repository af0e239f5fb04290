#include "tests/labs/08_overlap/rank_correct.h"

#include <algorithm>

#include "common/error.h"
#include "tests/grading/implementation.h"

namespace lab08 {

using lab::Tensor;

namespace given_1 {

LAB_GIVEN std::vector<Bucket> assign_buckets(std::span<const int64_t> sizes, int64_t cap_bytes,
                                             int64_t first_cap_bytes) {
  std::vector<Bucket> all;
  Bucket bucket;
  int64_t room = first_cap_bytes;
  for (size_t i = sizes.size(); i-- > 0;) {
    if (!bucket.empty() && sizes[i] > room) {
      all.push_back(bucket);
      bucket.clear();
      room = cap_bytes;
    }
    bucket.push_back(i);
    room -= sizes[i];
  }
  if (!bucket.empty()) all.push_back(bucket);
  return all;
}

}  // namespace given_1

namespace given_2 {

LAB_GIVEN void begin(Reducer& reducer, int64_t targets) {
  lab::require(targets >= 0, "begin was called with {} targets", targets);
  reducer.targets = targets;
  reducer.is_ready = std::vector<bool>(reducer.gradients.size(), false);
  reducer.missing.clear();
  for (const Bucket& bucket : reducer.buckets) reducer.missing.push_back(bucket.size());
  reducer.flat.clear();
  reducer.works.clear();
  reducer.total = Tensor::from({static_cast<float>(targets)}, {1});
  reducer.counting = reducer.world.all_reduce_async(reducer.total);
}

LAB_GIVEN void ready(Reducer& reducer, size_t parameter) {
  lab::require(parameter < reducer.is_ready.size(),
               "ready was called for parameter {}, before begin or for one that does not exist",
               parameter);
  lab::require(
      !reducer.is_ready[parameter],
      "ready was called twice for parameter {} in one step: only during the last backward pass of "
      "a step may gradients be sent",
      parameter);
  reducer.is_ready[parameter] = true;
  while (reducer.works.size() < reducer.buckets.size()) {
    const Bucket& next = reducer.buckets[reducer.works.size()];
    const auto is_ready = [&](size_t p) -> bool { return reducer.is_ready[p]; };
    reducer.missing[reducer.works.size()] =
        static_cast<size_t>(std::ranges::count_if(next, std::not_fn(is_ready)));
    if (!std::ranges::all_of(next, is_ready)) return;
    std::vector<float> numbers;
    for (size_t p : next)
      for (float value : reducer.gradients[p].values())
        numbers.push_back(value * static_cast<float>(reducer.targets));
    reducer.flat.push_back(Tensor::from(numbers, {static_cast<int64_t>(numbers.size())}));
    reducer.works.push_back(reducer.world.all_reduce_async(reducer.flat.back()));
  }
}

}  // namespace given_2

namespace given_3 {

LAB_GIVEN void finish(Reducer& reducer) {
  lab::require(reducer.gradients.empty() || std::ranges::count(reducer.is_ready, true) > 0,
               "finish was called, but no gradient had become ready: a rank that runs no backward "
               "pass must call ready for each of the {} itself",
               reducer.gradients.size());
  for (size_t p = 0; p < reducer.gradients.size(); ++p)
    lab::require(p < reducer.is_ready.size() && reducer.is_ready[p],
                 "finish was called, but the gradient of parameter {} of {} had never become ready",
                 p, reducer.gradients.size());
  lab::require(reducer.counting.has_value() && reducer.works.size() == reducer.buckets.size(),
               "finish was called, but only {} of {} buckets were posted", reducer.works.size(),
               reducer.buckets.size());
  reducer.counting->wait();
  const double all = reducer.total.data()[0];
  for (size_t b = 0; b < reducer.buckets.size(); ++b) {
    reducer.works[b].wait();
    const float* next = reducer.flat[b].data();
    for (size_t p : reducer.buckets[b])
      for (float& value : reducer.gradients[p].values())
        value = all > 0 ? static_cast<float>(*next++ / all) : 0.0F;
  }
}

}  // namespace given_3

}  // namespace lab08
