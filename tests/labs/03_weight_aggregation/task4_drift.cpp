// Task 4: the largest distance from the average, and a model that is left alone.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "common/ops/ops.h"
#include "tests/labs/03_weight_aggregation/weights.h"

namespace lab03::task4 {
namespace {

using lab::grading::Expected;
using lab::grading::JobOptions;
using lab::grading::late_messages;
using lab::grading::Mistake;
using lab::grading::Parcel;
using lab::grading::scenario_seed;
using lab::grading::stop;

/// Of the distance: it travels in float32.
constexpr double kTolerance = 1e-5;
/// Of a term of the average, which is rounded.
constexpr double kRounding = 2e-7;

Numbers less(Numbers values, const Numbers& center) {
  for (size_t i = 0; i < values.size(); ++i) values[i] -= center[i];
  return values;
}

/// What each rank would have to say about itself.
Numbers distances(const RankWeights& w, const Numbers& center) {
  Numbers all;
  for (const Numbers& own : w.values) all.push_back(lab::grading::norm(less(own, center)));
  return all;
}

double largest(const Numbers& values) { return *std::ranges::max_element(values); }
double total(const Numbers& values) { return std::accumulate(values.begin(), values.end(), 0.0); }

/// Largest over the ranks.
struct OtherNorms {
  double absolute = 0;  // sum of the absolute differences
  double element = 0;   // the largest difference
  double in_float = 0;  // the distance, with squares added up in float32

  explicit OtherNorms(const RankWeights& w) {
    const Numbers average = w.average();
    for (const Numbers& own : w.values) {
      const Numbers difference = less(own, average);
      double sum = 0;
      for (const double d : difference) sum += std::abs(d);
      float squares = 0;
      for (const double d : difference) squares += static_cast<float>(d * d);
      in_float = std::max(in_float, double{std::sqrt(squares)});
      absolute = std::max(absolute, sum);
      element = std::max(element, lab::grading::largest_magnitude(difference));
    }
  }
};

std::vector<Mistake> mistakes(const RankWeights& w, size_t self) {
  const auto n = static_cast<double>(w.ranks());
  const Numbers average = w.average();
  const Numbers own = distances(w, average);
  const Numbers plain = w.combine([=](size_t) { return 1 / n; });
  const Numbers scaled_twice = w.combine([&](size_t r) { return w.shares[r] * w.shares[r]; });
  const double right = largest(own);
  double squares = 0;
  double weighted_squares = 0;
  double with_share = 0;
  double of_squares = 0;  // the norm of a rank and that of the average, instead of a distance
  for (size_t r = 0; r < w.ranks(); ++r) {
    squares += own[r] * own[r];
    weighted_squares += w.shares[r] * own[r] * own[r];
    if (w.shares[r] > 0) with_share = std::max(with_share, own[r]);
    const double length = lab::grading::norm(w.values[r]);
    of_squares = std::max(of_squares, length * length);
  }
  const double length = lab::grading::norm(average);
  const OtherNorms other(w);
  Numbers opposite = average;
  for (double& value : opposite) value = -value;
  return {
      {{0},
       "no drift, though the replicas differ: are the weights compared with a copy, or with the "
       "average's own memory?"},
      {{own[self]},
       "this rank's own drift: all ranks should know the largest one (all_reduce with "
       "ReduceOp::kMax)"},
      {{*std::ranges::min_element(own)}, "the smallest drift of all ranks, not the largest"},
      {{total(own)}, "the sum of the ranks' drifts, not the largest: ReduceOp::kMax"},
      {{largest(distances(w, plain))},
       "the distance from the unweighted mean: the average is weighted by the shares"},
      {{total(own) / n}, "the mean of the ranks' drifts, not the largest: ReduceOp::kMax"},
      {{with_share},
       "a rank whose share is 0 is left out: it counts for nothing in the average, but it drifts"},
      {{std::sqrt(squares)},
       "the distances of all ranks together, not the largest: ReduceOp::kMax"},
      {{std::sqrt(weighted_squares)},
       "the mean of the ranks' squared distances, weighted by their shares: return the largest "
       "distance"},
      {{right * right}, "the square of the distance: the root is missing"},
      {{right / std::sqrt(static_cast<double>(average.size()))},
       "the root of the mean of the squares; the distance is the root of their sum"},
      {{other.in_float},
       "the squares are added up in float32: small ones get lost beside their sum; add up in "
       "double"},
      {{other.absolute},
       "the sum of the absolute differences; the distance is the root of the sum of squares"},
      {{other.element},
       "the largest difference of a single weight; the distance takes all of them together"},
      {{largest(distances(w, scaled_twice))},
       "the distance from an average whose terms are multiplied by their shares twice: "
       "average_weights does that itself"},
      {{largest(distances(w, opposite))},
       "the length of the weights plus the average: the average must be subtracted"},
      {{largest(distances(w, w.values[0]))},
       "the distance from rank 0's weights, not from the average of all"},
      {{std::sqrt(std::abs(of_squares - length * length))},
       "the difference of two norms, of the weights and of the average: square the difference of "
       "every weight"},
  };
}

void judge(const Case& c, const std::vector<Parcel>& results) {
  expect_whole_fences(results);
  for (size_t r = 0; r < results.size(); ++r)
    if (results[r].number("weights_changed") != 0)
      stop(
          fmt::format("drift changes the model: rank {}'s weights are no longer the same to the "
                      "last bit; average a copy (clone()), not the weights themselves",
                      r));
  const RankWeights weights = c.weights();
  const double right = largest(distances(weights, weights.average()));
  const double rounding = c.exact ? 0 : kRounding * lab::grading::norm(weights.magnitude());
  const std::vector<Numbers> got = numbers_of(results, "drift");
  expect_on_every_rank(got, [&](size_t r) {
    return Expected{
        .what =
            right == 0 ? "the drift, which is 0 where all weights are equal"
            : right < 1e-3 * lab::grading::norm(weights.magnitude())
                ? "the drift, which is small beside the weights (subtract first, and square the "
                  "difference: squares of weights cancel)"
                : "the drift",
        .values = {right},
        .tolerance = {kTolerance * right + rounding},
        .mistakes = [&, r] { return mistakes(weights, r); },
        .if_not_finite =
            "the drift is not finite: the root of a negative number, or a square sent "
            "as a float?"};
  });
  for (size_t r = 1; r < got.size(); ++r)
    if (got[r] != got[0])
      stop(
          fmt::format("the drift is not the same number on every rank\nrank 0 has {:.9g}, rank {} "
                      "has {:.9g}",
                      got[0][0], r, got[r][0]));
  for (size_t r = 0; r < results.size(); ++r)
    expect_one_aggregation(operations_of(results[r]), c.bytes(), r, results.size(),
                           "drift costs more traffic than an aggregation: averaging a copy once "
                           "and finding the largest number is enough");
}

/// Shares whose products need no rounding, and factors whose average with them is 0.
struct Balance {
  Numbers shares;
  Numbers factors;
};
Balance balance(size_t ranks) {
  switch (ranks) {
    case 1:
      return {{1}, {0}};
    case 2:
      return {{0.5, 0.5}, {1, -1}};
    case 3:
      return {{0.25, 0.25, 0.5}, {1, 1, -1}};
    default:
      return {{0.25, 0.25, 0.25, 0.25}, {1, -1, 1, -1}};
  }
}

/// Weights between 1 and 2 plus the rank's factor times deviation(i). All is exact.
Case balanced_case(const std::string& name, const lab::Shape& shape, size_t ranks,
                   const std::function<float(size_t)>& deviation) {
  const Balance b = balance(ranks);
  Case c = random_case(name, shape, b.shares, 0);
  c.exact = true;
  for (size_t r = 0; r < ranks; ++r) {
    size_t i = 0;
    for (float& value : c.values[r].values()) {
      value = 1 + static_cast<float>(i * 37 % 101) / 128 +
              static_cast<float>(b.factors[r]) * deviation(i);
      ++i;
    }
  }
  return c;
}

/// Numbers that a sum in float32, or a formula that cancels, would lose.
std::vector<Case> delicate_cases(size_t ranks, uint64_t seed) {
  std::vector<Case> cases = {
      balanced_case("equal weights", kSomeShape, ranks, [](size_t) { return 0.0F; }),
      balanced_case("differences that are small beside the weights", {40, 30}, ranks,
                    [](size_t i) { return static_cast<float>(1 + i % 3) * 0x1p-16F; }),
      balanced_case("differences that are tiny", {40, 30}, ranks,
                    [](size_t i) { return static_cast<float>(1 + i % 3) * 0x1p-20F; }),
      balanced_case("a single weight has drifted", kSomeShape, ranks,
                    [](size_t i) { return i == 50 ? 4.0F : 0.0F; }),
      balanced_case("differences whose squares are no float", kSomeShape, ranks,
                    [](size_t i) { return static_cast<float>(1 + i % 3) * 0x1p70F; }),
      random_case("another time", kSomeShape, balance(ranks).shares, seed + 1),
      random_case("weights whose squares are too small for a float", kSomeShape,
                  balance(ranks).shares, seed + 2),
      random_case("weights that differ in their last bits", kSomeShape, balance(ranks).shares,
                  seed),
  };
  for (const lab::Tensor& own : cases[cases.size() - 2].values) lab::scale(own, 0x1p-80F);
  for (size_t r = 1; r < ranks; ++r) {
    std::vector<lab::Tensor>& values = cases.back().values;
    values[r] = values[0].clone();
    for (const size_t i : {0, 24, 95}) {
      float& weight = values[r].values()[i];
      weight = std::nextafter(weight, 2.0F);
    }
  }
  return cases;
}

void expect_drifts(const std::vector<Case>& cases, JobOptions options) {
  options.given = {"1b", "2"};
  judge_calls(calls_of("drift", cases), options,
              [&](size_t k, const std::vector<Parcel>& ranks) { judge(cases[k], ranks); });
}

std::vector<Case> all_cases(size_t ranks, uint64_t seed) {
  std::vector<Case> cases = cases_for(ranks, seed);
  for (const Case& c : delicate_cases(ranks, seed)) cases.push_back(c);
  return cases;
}

TEST(Task4, LateMessagesInAnyOrder) {
  expect_drifts(all_cases(4, scenario_seed() + 100), late_messages(41));
}

TEST(Task4, TwoRanks) { expect_drifts(all_cases(2, scenario_seed() + 200), late_messages(42)); }

TEST(Task4, OneRankHasNone) {
  expect_drifts(all_cases(1, scenario_seed() + 300), late_messages(43));
}

/// Two large differences, and then a million small ones: their squares are 1/128 of the sum. Each
/// rank has several threads.
TEST(Task4, AMillionWeights) {
  expect_drifts({balanced_case("a million small differences beside two large ones", {1025, 1 << 10},
                               2, [](size_t i) { return i < 2 ? 1.0F : 0x1p-13F; })},
                {});
}

TEST(Task4, ThreeRanks) { expect_drifts(all_cases(3, scenario_seed() + 400), {}); }

}  // namespace
}  // namespace lab03::task4
