// Right and wrong ways to combine the means of ranks.
#include "tests/labs/02_gradient_allreduce/means.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>

namespace lab02 {

double RankMeans::all_targets() const {
  double sum = 0;
  for (double own : targets) sum += own;
  return sum;
}

double RankMeans::share(size_t rank) const {
  const double all = all_targets();
  return all > 0 ? targets[rank] / all : 0.0;
}

Numbers RankMeans::combine(const std::function<double(size_t)>& factor) const {
  Numbers sum(values[0].size(), 0.0);
  for (size_t r = 0; r < ranks(); ++r) {
    const double of_rank = factor(r);
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += of_rank * values[r][i];
  }
  return sum;
}

Numbers RankMeans::mean() const {
  return combine([this](size_t r) { return share(r); });
}

Numbers RankMeans::magnitude() const {
  Numbers sum(values[0].size(), 0.0);
  for (size_t r = 0; r < ranks(); ++r) {
    const double of_rank = share(r);
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += of_rank * std::abs(values[r][i]);
  }
  return sum;
}

namespace {

/// Hypotheses about a wrong mean, on rank `self`.
std::vector<lab::grading::Mistake> mistakes(const RankMeans& means, size_t self,
                                            const std::string& what) {
  std::vector<lab::grading::Mistake> all;
  const double total = means.all_targets();
  const auto n = static_cast<double>(means.ranks());
  const Numbers& targets = means.targets;
  const auto with_targets =
      static_cast<double>(std::ranges::count_if(targets, [](double count) { return count > 0; }));
  if (total == 0) return all;
  const auto add = [&](const std::function<double(size_t)>& factor, const std::string& message) {
    all.push_back({means.combine(factor), what + ": " + message});
  };
  const auto own = [self](size_t r) { return r == self ? 1.0 : 0.0; };
  if (std::ranges::all_of(targets, [&](double count) { return count == targets[0]; }))
    add([](size_t) { return 1.0; },
        fmt::format("{:.1f} times what is expected: summed over the ranks, and not averaged?", n));
  add([](size_t) { return 1.0; }, "the means of the ranks are added up: summed, and not averaged?");
  add([&](size_t) { return 1.0 / n; },
      "a mean of means: a target on a rank with few targets counts more than one elsewhere; weight "
      "each rank by its share of all targets");
  add([&](size_t r) { return targets[r] > 0 ? 1.0 / with_targets : 0.0; },
      "a mean of means over the ranks that have targets: weight each rank by its share of all "
      "targets");
  add([&](size_t r) { return targets[r]; },
      "a sum over all targets: divide by the number of targets of all ranks");
  add([&](size_t r) { return targets[r] / n; },
      "divided by the number of ranks instead of the number of targets of all ranks");
  add([&](size_t r) { return targets[r] / total / n; },
      "divided by the number of ranks on top of the number of targets: averaged twice");
  add([&](size_t r) { return targets[r] / total / total; },
      "divided by the number of targets of all ranks twice");
  add([&](size_t r) { return targets[r] * targets[r] / total / total; },
      "multiplied by the rank's share twice");
  if (with_targets == n)
    add([&](size_t r) { return total / targets[r]; },
        "the share is upside down: divide a rank's targets by those of all ranks");
  add([&](size_t r) { return targets[r] / *std::ranges::max_element(targets); },
      "divided by the largest of the ranks' numbers of targets: all_reduce adds them up unless it "
      "is given ReduceOp::kMax");
  add([&](size_t) { return 1 / total; },
      "the means of the ranks are added up and divided by the number of all targets: multiply "
      "each by its own number first");
  if (targets[self] == 0)
    add([](size_t) { return 0.0; },
        "0 on a rank without targets: the mean over the targets of all ranks belongs there, too");
  add([&](size_t r) { return own(r); },
      "still what this rank alone had: nothing of the other ranks arrived here. Was the result "
      "written back, on every rank? (reduce gives it to one rank only, all_reduce to all)");
  add([&](size_t r) { return own(r) * targets[r] / total; },
      "this rank's share alone: nothing of the other ranks was added here. Was the result written "
      "back, on every rank? (reduce gives it to one rank only, all_reduce to all)");
  add([&](size_t) { return targets[self] / total; },
      "the means of all ranks are added up, and only their sum is scaled by this rank's share: "
      "each rank scales its own before the all_reduce");
  if (targets[0] > 0)
    add([&](size_t r) { return targets[r] / targets[0]; },
        "divided by the targets of rank 0 alone: an all_reduce adds up those of all ranks, a "
        "broadcast copies one number");
  Numbers narrow;  // targets in 32 bits
  for (const double count : targets)
    narrow.push_back(static_cast<int32_t>(static_cast<int64_t>(count)));
  const double narrow_total = std::accumulate(narrow.begin(), narrow.end(), 0.0);
  if (narrow != targets && narrow_total != 0)
    add([&](size_t r) { return narrow[r] / narrow_total; },
        "targets are int64_t, and must not be narrowed to 32 bits");
  double at_least_one = 0;
  for (const double count : targets) at_least_one += std::max(count, 1.0);
  add([&](size_t r) { return targets[r] / at_least_one; },
      "a rank without targets is counted as if it had one: 0 is a number like any other");
  add([&](size_t) { return 0.0; },
      "0: was the share computed as a quotient of integers, which is 0 below 1?");
  add([&](size_t r) { return own(r) + targets[r] / total; },
      "the mean is added to what this rank had: it must replace that");
  std::vector<Numbers> parts;
  for (size_t part = 0; part < means.ranks(); ++part)
    parts.push_back(means.combine([&](size_t r) { return r == part ? targets[r] / total : 0.0; }));
  all.push_back({lab::grading::largest_in_each_place(parts),
                 what + ": the largest of all ranks' parts, not their sum: all_reduce adds up "
                        "unless it is given ReduceOp::kMax"});
  for (size_t missing = 0; missing < means.ranks(); ++missing)
    add([&](size_t r) { return r == missing ? 0.0 : targets[r] / total; },
        fmt::format("what rank {} has is missing", missing));
  return all;
}

}  // namespace

lab::grading::Expected RankMeans::expected(size_t self, const std::string& what) const {
  constexpr double kTolerance = 1e-6;  // of the sum of the absolute terms
  lab::grading::Expected expected{
      .what = what,
      .values = mean(),
      .tolerance = magnitude(),
      .mistakes = [this, self, what] { return mistakes(*this, self, what); },
      .if_not_finite = what + ": not a number: 0 targets divided by 0 targets?"};
  for (double& tolerance : expected.tolerance) tolerance = kTolerance * tolerance + 1e-30;
  return expected;
}

void expect_all_reduces(const std::vector<lab::grading::Operation>& sent, size_t rank,
                        const Budget& budget) {
  const auto refuse = [&](size_t operation, const std::string& why) {
    lab::grading::stop(fmt::format("{}\nrank {}: {}; expected at most {} all_reduces of {} bytes",
                                   why, rank, in_words(sent, operation), budget.all_reduces,
                                   budget.bytes));
  };
  for (size_t i = 0; i < sent.size(); ++i)
    if (sent[i].kind != lab::OpKind::kAllReduce)
      refuse(i, fmt::format("the numbers are right, but rank {} also calls {}: all_reduce is all "
                            "that is needed",
                            rank, lab::op_name(sent[i].kind)));
  if (sent.size() > budget.all_reduces) refuse(budget.all_reduces, budget.if_too_many);
  uint64_t bytes = 0;
  for (size_t i = 0; i < sent.size(); ++i)
    if ((bytes += sent[i].bytes) > budget.bytes) refuse(i, budget.if_too_large);
}

}  // namespace lab02
