// Task 1b: the average of weights, in the place where they lie.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "common/ops/ops.h"
#include "tests/labs/03_weight_aggregation/weights.h"

namespace lab03::task1b {
namespace {

using lab::grading::Call;
using lab::grading::JobOptions;
using lab::grading::late_messages;
using lab::grading::Parcel;
using lab::grading::scenario_seed;
using lab::grading::stop;

/// One all_reduce of all weights, and nothing else.
void expect_messages(const Case& c, const Parcel& result, size_t rank, size_t ranks) {
  std::vector<uint64_t> bytes;
  bool others = false;
  for (const lab::grading::Operation& operation : operations_of(result)) {
    others = others || operation.kind != lab::OpKind::kAllReduce;
    bytes.push_back(operation.bytes);
  }
  const bool may_be_silent = ranks == 1 || c.bytes() == 0;
  if (!others && (bytes == std::vector{c.bytes()} || (bytes.empty() && may_be_silent))) return;
  stop(fmt::format(
      "the weights are right, but the messages are not: they travel in one all_reduce, and there "
      "is no other message\nrank {}: {}; the weights are {} bytes",
      rank, in_words(operations_of(result)), c.bytes()));
}

/// The sum over the ranks if each has taken size(0) for the number of its weights.
lab::grading::Mistake first_dimension(const Case& c, const RankWeights& weights) {
  Numbers sum = weights.combine([](size_t) { return 1.0; });
  const Numbers average = weights.average();
  std::copy_n(average.begin(), c.values[0].size(0), sum.begin());
  return {sum,
          "the weights: only the first size(0) of them are multiplied by the share, the others are "
          "added up as they are: a tensor has numel() elements"};
}

/// `got`: the weights of `results`.
void judge(const Case& c, const std::vector<Parcel>& results, const std::vector<Numbers>& got) {
  expect_whole_fences(results);
  const RankWeights weights = c.weights();
  const auto expected = [&](size_t r) {
    lab::grading::Expected of_rank = weights.expected(r, got, "the weights");
    of_rank.mistakes = [&, usual = of_rank.mistakes] {
      std::vector<lab::grading::Mistake> mistakes = usual();
      mistakes.push_back(first_dimension(c, weights));
      return mistakes;
    };
    return of_rank;
  };
  // The last rank first: a broadcast leaves rank 0 as it was.
  expect_on_every_rank(got, expected, {}, lab::grading::Blame::kLastRank);
  expect_same_bits(got, "the averaged weights");
  for (size_t r = 0; r < results.size(); ++r) expect_messages(c, results[r], r, results.size());
}

void expect_averages(const std::vector<Case>& cases, const JobOptions& options) {
  judge_calls(calls_of("average_weights", cases), options,
              [&](size_t k, const std::vector<Parcel>& ranks) {
                judge(cases[k], ranks, tensors_of(ranks, "weights"));
              });
}

/// Near the ends of what a float can hold, though not the averages.
std::vector<Case> extreme_cases(size_t ranks) {
  const Numbers equal(ranks, 1.0 / static_cast<double>(ranks));
  Numbers unequal(ranks, (1 - 1e-9) / static_cast<double>(ranks - 1));
  unequal[0] = 1e-9;
  std::vector<Case> cases = {
      random_case("weights near the largest float", kSomeShape, equal, scenario_seed() + 900),
      random_case("a share of 1e-9, of weights that are as large", kSomeShape, unequal,
                  scenario_seed() + 910),
      random_case("weights near 1e-25", kSomeShape, equal, scenario_seed() + 930),
      random_case("weights of 0 on rank 1", kSomeShape, equal, scenario_seed() + 940)};
  for (const lab::Tensor& own : cases[0].values) lab::scale(own, 3.3e38F);
  lab::scale(cases[1].values[0], 1e9F);
  for (const lab::Tensor& own : cases[2].values) lab::scale(own, 1e-25F);
  cases[3].values[1].fill(0);
  return cases;
}

TEST(Task1b, FourNumbersByHand) {
  const Case c{.name = "the table of section 4",
               .shares = {0.25, 0.75},
               .values = {lab::Tensor::from({1, 6}, {2}), lab::Tensor::from({5, 10}, {2})}};
  expect_averages({c}, late_messages(20));
}

TEST(Task1b, LateMessagesInAnyOrder) {
  expect_averages(cases_for(4, scenario_seed() + 100), late_messages(21));
}

TEST(Task1b, FiveRanks) { expect_averages(cases_for(5, scenario_seed() + 200), late_messages(22)); }

TEST(Task1b, LargeAndSmallNumbers) {
  expect_averages(extreme_cases(3), late_messages(28));
  expect_averages(extreme_cases(2), late_messages(29));
}

/// A replica that has diverged must show in the average.
TEST(Task1b, InfiniteWeights) {
  const Case finite =
      random_case("rank 1 has diverged", kSomeShape, {0.25, 0.5, 0.25}, scenario_seed() + 920);
  for (const lab::Tensor& own : finite.values)
    for (const size_t i : {3, 7}) own.values()[i] = 0.0F;
  Case diverged = finite;
  diverged.values[1] = finite.values[1].clone();
  diverged.values[1].values()[3] = std::numeric_limits<float>::infinity();
  diverged.values[1].values()[7] = std::numeric_limits<float>::quiet_NaN();
  judge_calls(calls_of("average_weights", {diverged}), late_messages(30),
              [&](size_t, const std::vector<Parcel>& ranks) {
                std::vector<Numbers> got = tensors_of(ranks, "weights");
                for (size_t r = 0; r < got.size(); ++r)
                  for (const size_t i : {3, 7}) {
                    if (std::isfinite(got[r].at(i)))
                      stop(fmt::format(
                          "rank {}: the average of a weight that is infinite or not a number on "
                          "rank 1 is {:.3g}: add up the weights as they are; the average must show "
                          "that a replica has diverged",
                          r, got[r][i]));
                    got[r][i] = 0;  // of what `finite` has there
                  }
                judge(finite, ranks, got);
              });
}

TEST(Task1b, SeventeenRanks) {
  expect_averages(cases_for(17, scenario_seed() + 700), late_messages(26));
}

/// More than what frameworks send in one piece.
TEST(Task1b, SevenMillionWeights) {
  expect_averages({random_case("seven million weights", {7'000'000}, {0.25, 0.75}, 800)},
                  late_messages(27));
}

TEST(Task1b, TwoRanks) { expect_averages(cases_for(2, scenario_seed() + 300), late_messages(23)); }

TEST(Task1b, OneRankKeepsItsWeights) {
  expect_averages(cases_for(1, scenario_seed() + 400), late_messages(24));
}

TEST(Task1b, ThreeRanks) { expect_averages(cases_for(3, scenario_seed() + 500), {}); }

/// The share is an argument: what share_of has returned before says nothing.
TEST(Task1b, AfterOtherShares) {
  const std::vector<Case> cases = {
      random_case("after share_of", kSomeShape, {0.5, 0.125, 0.375}, scenario_seed() + 600)};
  std::vector<Call> calls = calls_of("average_weights", cases);
  Call shares{.scenario = "share_of", .inputs = std::vector<Parcel>(3), .prelude = true};
  for (size_t r = 0; r < 3; ++r) shares.inputs[r].set("examples", static_cast<double>(1 + r));
  calls.insert(calls.begin(), shares);
  judge_calls(calls, late_messages(25), [&](size_t, const std::vector<Parcel>& ranks) {
    judge(cases[0], ranks, tensors_of(ranks, "weights"));
  });
}

}  // namespace
}  // namespace lab03::task1b
