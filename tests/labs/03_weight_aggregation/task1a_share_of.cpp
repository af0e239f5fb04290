// Task 1a: one number of every rank, and what part of their sum it is.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "tests/grading/training_oracle.h"
#include "tests/grading/verdict.h"

namespace lab03::task1a {
namespace {

using lab::grading::expect_on_every_rank;
using lab::grading::Expected;
using lab::grading::Mistake;
using lab::grading::Numbers;
using lab::grading::Parcel;

constexpr double kTolerance = 1e-6;  // of the share: the sum may have been made in float32

double sum(const Numbers& numbers) { return std::accumulate(numbers.begin(), numbers.end(), 0.0); }

std::vector<Mistake> mistakes(const Numbers& examples, size_t self) {
  if (examples.size() == 1) return {};  // the sum is this rank's own number
  const double own = examples[self];
  const double total = sum(examples);
  std::vector<Mistake> all = {
      {{1},
       "the share is 1: divided by this rank's own examples. Were those of all ranks added up, on "
       "every rank (all_reduce)?"},
      {{1 / static_cast<double>(examples.size())},
       "all ranks get the same share, though their numbers of examples differ: divide by the sum "
       "over the ranks, not by the number of ranks"},
      {{total}, "this is the sum of the examples, not this rank's part of it"},
      {{own / std::max(total, 1.0)},
       "divided by 1, because the sum is below 1; examples may be in any unit: divide by their sum "
       "as it is"},
      {{own}, "these are this rank's examples, not their part of the sum"},
      {{total / own}, "the quotient is upside down"},
      {{std::round(100 * own / total) / 100}, "the share is rounded to whole per cent"},
      {{std::floor(own / total)}, "every share below 1 is 0: an integer division?"},
  };
  if (own > 0 && own < 1e-12 * total)
    all.insert(all.begin(),
               {{1 - (total - own) / total},
                "1 minus the part of the other ranks: nearly all digits of a small share cancel; "
                "divide this rank's examples by the sum"});
  all.push_back(
      {{own / std::ranges::max(examples)},
       "divided by the largest number of examples on any rank: all_reduce must add them up"});
  double part = 0;
  for (size_t last = 0; last + 1 < examples.size(); ++last) {
    part += examples[last];
    all.push_back({{own / part},
                   fmt::format("only the examples of {} are in the sum",
                               last == 0 ? "rank 0" : fmt::format("ranks 0 to {}", last))});
  }
  Numbers whole = examples;
  for (double& e : whole) e = std::floor(e);
  all.push_back({{whole[self] / sum(whole)},
                 "the examples are rounded to whole numbers: they may be in any unit"});
  Numbers smoothed = examples;
  for (double& e : smoothed) e = std::max(e, 1.0);
  all.push_back({{smoothed[self] / sum(smoothed)},
                 "every rank is counted as if it had at least one example"});
  return all;
}

/// One call after the other in the same processes.
void expect_shares(const std::vector<Numbers>& all_examples,
                   const lab::grading::JobOptions& options) {
  std::vector<lab::grading::Call> calls;
  for (const Numbers& examples : all_examples) {
    lab::grading::Call call{.scenario = "share_of",
                            .inputs = std::vector<Parcel>(examples.size()),
                            .name = fmt::format("examples {}", fmt::join(examples, ", "))};
    for (size_t r = 0; r < examples.size(); ++r) call.inputs[r].set("examples", examples[r]);
    calls.push_back(call);
  }
  judge_calls(calls, options, [&](size_t k, const std::vector<Parcel>& ranks) {
    const Numbers& examples = all_examples[k];
    expect_on_every_rank(numbers_of(ranks, "share"), [&](size_t r) {
      const double share = examples[r] / sum(examples);
      return Expected{
          .what = examples.size() == 1 ? "the share of a single rank, which is 1" : "the share",
          .values = {share},
          .tolerance = {kTolerance * share},
          .mistakes = [&examples, r] { return mistakes(examples, r); },
          .if_not_finite = "the share is not finite: was something divided by 0?"};
    });
  });
}

/// Examples in any unit: many, few, fractions of one, none.
std::vector<Numbers> examples_for(size_t ranks, uint64_t seed) {
  const std::vector<Numbers> lists = {
      {100, 300, 420, 50},    {255, 255, 255, 255}, {0.5, 0.5, 0.25, 0.75}, {3, 0, 1, 0},
      {0.001, 0.002, 0, 0.1}, {5e9, 1e9, 2.5e9, 3}, {7, 0, 0, 0},           {420, 100, 300, 50},
      {100, 300, 420, 50},    {1e-9, 1e9, 0, 5e8},
  };
  std::vector<Numbers> all;
  for (const Numbers& list : lists) {
    Numbers& examples = all.emplace_back();
    for (size_t r = 0; r < ranks; ++r) examples.push_back(list[r % list.size()]);
  }
  // The smallest numbers, and the largest sum.
  const double parts = 0.5 * static_cast<double>(ranks * (ranks + 1));
  for (const double unit : {1e-30, 1e30 / parts}) {
    Numbers& examples = all.emplace_back();
    for (size_t r = 1; r <= ranks; ++r) examples.push_back(unit * static_cast<double>(r));
  }
  std::mt19937_64 generator(seed);
  for (const double unit : {1.0, 0.01, 1e6}) {
    Numbers& examples = all.emplace_back();
    for (size_t r = 0; r < ranks; ++r)
      examples.push_back(unit * static_cast<double>(1 + generator() % 1000) / 8);
  }
  return all;
}

TEST(Task1a, LateMessagesInAnyOrder) {
  expect_shares(examples_for(4, lab::grading::scenario_seed() + 10),
                lab::grading::late_messages(11));
}

TEST(Task1a, SeventeenRanks) {
  expect_shares(examples_for(17, lab::grading::scenario_seed() + 50),
                lab::grading::late_messages(14));
}

TEST(Task1a, TwoRanks) {
  expect_shares(examples_for(2, lab::grading::scenario_seed() + 20),
                lab::grading::late_messages(12));
}

TEST(Task1a, OneRankHasAll) {
  expect_shares(examples_for(1, lab::grading::scenario_seed() + 30),
                lab::grading::late_messages(13));
}

TEST(Task1a, ThreeRanks) { expect_shares(examples_for(3, lab::grading::scenario_seed() + 40), {}); }

}  // namespace
}  // namespace lab03::task1a
