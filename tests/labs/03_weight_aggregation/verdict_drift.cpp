// Verdict on task 4: the largest distance from the average, and a model that it leaves alone.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "common/grading/verdict.h"
#include "tests/labs/03_weight_aggregation/parameter_sets.h"

namespace lab03 {
namespace {

using lab::grading::Mistake;
using lab::grading::Parcel;
using lab::grading::stop;

/// Of the distance: a sum of a hundred squares in float32, whatever their order.
constexpr double kTolerance = 1e-5;

/// What each rank would have to say about itself.
Numbers distances(const std::vector<Numbers>& weights, const Numbers& center, double power) {
  Numbers all;
  for (const Numbers& own : weights) {
    double sum = 0;
    for (size_t i = 0; i < own.size(); ++i) sum += std::pow(std::abs(own[i] - center[i]), power);
    all.push_back(sum);
  }
  return all;
}

double largest(const Numbers& values) { return *std::ranges::max_element(values); }
double total(const Numbers& values) { return std::accumulate(values.begin(), values.end(), 0.0); }

Numbers roots(Numbers values) {
  for (double& value : values) value = std::sqrt(value);
  return values;
}

std::vector<Mistake> mistakes(const std::vector<Numbers>& weights, const Numbers& average,
                              size_t r) {
  const auto ranks = static_cast<double>(weights.size());
  const auto elements = static_cast<double>(average.size());
  const Numbers squares = distances(weights, average, 2);
  const Numbers own = roots(squares);
  const Numbers plain = combined(weights, [&](size_t) { return 1 / ranks; });
  Numbers most;
  for (const Numbers& w : weights) {
    double element = 0;
    for (size_t i = 0; i < w.size(); ++i) element = std::max(element, std::abs(w[i] - average[i]));
    most.push_back(element);
  }
  return {
      {{0},
       "no drift, though the replicas differ: are the weights compared with a copy, or with "
       "the average's own memory?"},
      {{own[r]},
       "this rank's own drift: all ranks should know the largest one (all_reduce with "
       "ReduceOp::kMax)"},
      {{*std::ranges::min_element(own)}, "the smallest drift of all ranks, not the largest"},
      {{total(own)}, "the sum of the ranks' drifts, not the largest: ReduceOp::kMax"},
      {{total(own) / ranks}, "the mean of the ranks' drifts, not the largest: ReduceOp::kMax"},
      {{std::sqrt(total(squares))},
       "the distances of all ranks together, not the largest: ReduceOp::kMax"},
      {{largest(squares)}, "the square of the distance: the root is missing"},
      {{std::sqrt(largest(squares) / elements)},
       "the root of the mean of the squares; the distance is the root of their sum"},
      {{largest(distances(weights, average, 1))},
       "the sum of the absolute differences; the distance is the root of the sum of squares"},
      {{largest(most)},
       "the largest difference of a single weight; the distance takes all of them together"},
      {{largest(roots(distances(weights, plain, 2)))},
       "the distance from the unweighted mean: the average is weighted by the shares"},
  };
}

void expect_unchanged(const std::vector<Parcel>& inputs, const std::vector<Parcel>& results) {
  for (const char* kind : {"value", "gradient"}) {
    const std::vector<Numbers> before = joined(inputs, kind);
    const std::vector<Numbers> after = joined(results, kind);
    for (size_t r = 0; r < before.size(); ++r)
      if (before[r] != after[r])
        stop(
            fmt::format("drift changes the model: rank {}'s {} are not what they were before; "
                        "average a copy (clone()), not the weights themselves",
                        r, kind == std::string("value") ? "weights" : "gradients"));
  }
}

void expect_drift(const std::vector<Parcel>& inputs, const Numbers& shares) {
  const std::vector<Numbers> weights = joined(inputs, "value");
  const Numbers average = combined(weights, [&](size_t r) { return shares[r]; });
  const double right = largest(roots(distances(weights, average, 2)));
  const std::vector<Parcel> results =
      lab::grading::student_group("drift", inputs, {.functions = lab::grading::Functions::kGiven});
  expect_unchanged(inputs, results);
  for (size_t r = 0; r < inputs.size(); ++r)
    lab::grading::expect(results[r].number("drift"),
                         {.what = fmt::format("the drift, on rank {}", r),
                          .values = {right},
                          .tolerance = {kTolerance * std::max(right, 1.0)},
                          .name = {},
                          .mistakes = mistakes(weights, average, r),
                          .if_not_finite = "the drift is not finite"});
}

TEST(Task4, LargestOfThreeRanks) {
  const Numbers shares = {0.5, 0.125, 0.375};
  expect_drift(parameter_sets(shares), shares);
}

TEST(Task4, EqualShares) {
  const Numbers shares = {1.0 / 3, 1.0 / 3, 1.0 / 3};
  expect_drift(parameter_sets(shares), shares);
}

TEST(Task4, EqualReplicasHaveNone) {
  std::vector<Parcel> inputs(3, parameter_set(0, 0.25));
  inputs[2].set("share", 0.5);
  expect_drift(inputs, {0.25, 0.25, 0.5});
}

TEST(Task4, CostsOneAggregation) {
  const Numbers shares = {0.25, 0.75};
  const std::vector<Parcel> inputs = parameter_sets(shares);
  const std::vector<Parcel> results =
      lab::grading::student_group("drift", inputs, {.functions = lab::grading::Functions::kGiven});
  const size_t weights = joined(inputs[0], "value").size() * sizeof(float);
  for (size_t r = 0; r < results.size(); ++r) {
    const auto sent = lab::grading::traffic_of(results[r], lab::OpKind::kAllReduce);
    if (sent.bytes > 2 * weights + 64)
      stop(
          fmt::format("rank {} put {} bytes into all_reduces; the weights have {}: averaging a "
                      "copy once and finding the largest number is enough",
                      r, sent.bytes, weights));
  }
}

}  // namespace
}  // namespace lab03
