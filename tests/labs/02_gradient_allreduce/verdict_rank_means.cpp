// Right and wrong ways to combine the means of ranks.
#include "tests/labs/02_gradient_allreduce/verdict_rank_means.h"

#include <fmt/format.h>

#include <cmath>

namespace lab02 {

double RankMeans::all_targets() const {
  double sum = 0;
  for (double own : targets) sum += own;
  return sum;
}

Numbers RankMeans::combine(const std::function<double(size_t)>& factor) const {
  Numbers sum(values[0].size(), 0.0);
  for (size_t r = 0; r < ranks(); ++r)
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += factor(r) * values[r][i];
  return sum;
}

Numbers RankMeans::mean() const {
  const double all = all_targets();
  return combine([&](size_t r) { return all > 0 ? targets[r] / all : 0.0; });
}

Numbers RankMeans::magnitude() const {
  RankMeans magnitudes = *this;
  for (Numbers& own : magnitudes.values)
    for (double& value : own) value = std::abs(value);
  return magnitudes.mean();
}

lab::grading::Expected RankMeans::expected(size_t self, const std::string& what) const {
  constexpr double kTolerance = 1e-6;  // of the sum of the absolute terms
  lab::grading::Expected expected{
      .what = what,
      .values = mean(),
      .tolerance = magnitude(),
      .name = {},
      .mistakes = {},
      .if_not_finite = what + ": not a number: 0 targets divided by 0 targets?"};
  for (double& tolerance : expected.tolerance) tolerance = kTolerance * tolerance + 1e-30;

  const double all = all_targets();
  const auto n = static_cast<double>(ranks());
  if (all == 0) return expected;
  const auto add = [&](const std::function<double(size_t)>& factor, const std::string& message) {
    expected.mistakes.push_back({combine(factor), what + ": " + message});
  };
  const auto own = [self](size_t r) { return r == self ? 1.0 : 0.0; };
  bool equal = true;
  for (double count : targets) equal = equal && count == targets[0];
  if (equal)
    add([](size_t) { return 1.0; },
        fmt::format("{:.1f} times what is expected: summed over the ranks, and not averaged?", n));
  add([](size_t) { return 1.0; }, "the means of the ranks are added up: summed, and not averaged?");
  add([&](size_t) { return 1.0 / n; },
      "a mean of means: a target on a rank with few targets counts more than one elsewhere; weigh "
      "each rank by its share of all targets");
  add([&](size_t r) { return targets[r]; },
      "a sum over all targets: divide by the number of targets of all ranks");
  add([&](size_t r) { return targets[r] / all / n; },
      "divided by the number of ranks on top of the number of targets: averaged twice");
  add([&](size_t r) { return targets[r] / all / all; },
      "divided by the number of targets of all ranks twice");
  add([&](size_t r) { return own(r); },
      "still those of this rank alone: nothing of the other ranks arrived here. Was the result "
      "written back, on every rank? (reduce gives it to one rank only, all_reduce to all)");
  add([&](size_t r) { return own(r) * targets[r] / all; },
      "this rank's share alone: nothing of the other ranks was added here. Was the result written "
      "back, on every rank? (reduce gives it to one rank only, all_reduce to all)");
  return expected;
}

}  // namespace lab02
