// Task 1: two functions, each the other's backward pass.
#include <gtest/gtest.h>

#include "tests/labs/10_tensor_parallel/slices.h"

namespace lab10::task1 {
namespace {

using lab::grading::Call;
using lab::grading::JobOptions;
using lab::grading::late_messages;

/// The first rows of `xs` are what each rank puts in.
void judge(const std::vector<Tensor>& xs, const std::vector<Parcel>& ranks) {
  const size_t n = ranks.size();
  Numbers sum(static_cast<size_t>(xs[0].numel()), 0.0);
  for (const Tensor& x : xs) sum = plus(sum, numbers_of(x));
  struct Direction {
    const char* entry;
    const char* name;
    bool sums;
  };
  for (const Direction& d : {Direction{"copy.forward", "copy_to_ranks forward", false},
                             Direction{"copy.backward", "copy_to_ranks backward", true},
                             Direction{"sum.forward", "sum_over_ranks forward", true},
                             Direction{"sum.backward", "sum_over_ranks backward", false}})
    for (size_t r = 0; r < n; ++r) {
      const Numbers own = numbers_of(xs[r]);
      const std::string what = fmt::format("{} on rank {}", d.name, r);
      const Parcel sent = ranks[r].part(fmt::format("{}.sent", d.entry));
      const int count = d.sums && n > 1 ? 1 : 0;
      const auto mistakes = [&]() -> std::vector<Mistake> {
        Numbers largest = own;
        for (const Tensor& x : xs)
          for (size_t i = 0; i < own.size(); ++i)
            largest[i] = std::max(largest[i], numbers_of(x)[i]);
        Numbers mean = sum;
        for (double& value : mean) value /= static_cast<double>(n);
        Numbers part = own;
        for (double& value : part) value /= static_cast<double>(n);
        if (!d.sums)
          return {
              {part, fmt::format("{} divides by the number of ranks: in this direction the numbers "
                                 "must stay as they are",
                                 d.name)},
              {sum,
               fmt::format(
                   "{} sums over the ranks: in this direction the numbers must stay as they are",
                   d.name)},
              {mean, fmt::format("{} averages over the ranks: in this direction the numbers must "
                                 "stay as they are",
                                 d.name)}};
        return {
            {own,
             fmt::format(
                 "{} leaves every rank with its own numbers: in this direction they must be summed",
                 d.name)},
            {mean, fmt::format("{}: a mean over the ranks, not their sum", d.name)},
            {largest, fmt::format("{}: the largest of all ranks, not their sum", d.name)}};
      };
      expect_tensor(what, ranks[r].tensor(d.entry), d.sums ? sum : own, mistakes,
                    {.terms = static_cast<double>(n),
                     .unexplained = wrong_messages(d.name, sent, count, xs[0].numel())});
      expect_all_reduces(d.name, sent, count, xs[0].numel());
      if (ranks[r].number(fmt::format("{}.copies", d.entry)) > 0)
        stop(fmt::format(
            "{} makes another tensor: it needs none, the numbers are summed in x itself", d.name));
    }
}

constexpr size_t kAlone = 5;  // the call in which each rank is in a group of its own

/// Several shapes, and one of them again with other numbers. In one call the last rank has nothing
/// but zeros, and takes part all the same.
void expect_conjugates(size_t n, uint64_t seed, const JobOptions& options) {
  std::vector<Call> calls;
  std::vector<std::vector<Tensor>> all;
  const uint64_t drawn = seed + 1000 * lab::grading::scenario_seed();
  for (const lab::Shape& shape :
       {lab::Shape{2, 3}, {5, 1}, {1}, {2, 3, 4}, {2, 3}, {7, 33}, {300, 256}}) {
    std::vector<Tensor> xs;
    Call call{.scenario = "conjugates",
              .inputs = std::vector<Parcel>(n),
              .name = fmt::format("shape {}", lab::to_string(shape))};
    for (size_t r = 0; r < n; ++r) {
      xs.push_back(draw_tensor(shape, 2.0, drawn + 10 * all.size() + r));
      if (all.size() == 1 && r + 1 == n) xs.back().fill(0.0F);
      call.inputs[r].set("x", xs[r]);
      call.inputs[r].set("alone", all.size() == kAlone ? 1.0 : 0.0);
    }
    calls.push_back(call);
    all.push_back(xs);
  }
  judge_calls(calls, options, [&](size_t k, const std::vector<Parcel>& ranks) {
    if (k != kAlone) return judge(all[k], ranks);
    for (size_t r = 0; r < n; ++r) judge({all[k][r]}, {ranks[r]});
  });
}

TEST(Task1, ThreeRanksLateMessages) { expect_conjugates(3, 11, late_messages(11)); }
TEST(Task1, OneRankSendsNothing) { expect_conjugates(1, 12, late_messages(12)); }
TEST(Task1, SixRanks) { expect_conjugates(6, 13, late_messages(13)); }
TEST(Task1, TwoRanksOverGloo) { expect_conjugates(2, 14, {}); }

}  // namespace
}  // namespace lab10::task1
