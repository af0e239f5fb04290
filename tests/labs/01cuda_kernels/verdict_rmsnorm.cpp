// Verdict on task C1: RMSNorm.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "common/grading/verdict.h"
#include "tests/labs/01_single_gpu/random_input.h"
#include "tests/labs/01cuda_kernels/judge.h"

namespace lab01cuda {
namespace {

using lab::Tensor;
using lab::grading::Expected;
using lab::grading::Parcel;
using lab::grading::to_doubles;

// A sum of up to 4096 squares in float, each thread's in order.
constexpr double kTolerance = 1e-5;

struct Rows {
  Tensor x;       // [rows, columns]
  Tensor weight;  // [columns]

  int64_t columns() const { return x.size(1); }
};

/// Values of both signs, rows of different size, weights that are not 1.
Rows random_rows(int64_t rows, int64_t columns, double spread) {
  Rows result{.x = lab01::random_tensor({rows, columns}, spread, 51),
              .weight = lab01::random_tensor({columns}, 0.5, 52)};
  for (int64_t n = 0; n < rows; ++n)
    for (float& value : result.x.rows(n, n + 1).values())
      value = (value + static_cast<float>(0.3 * spread)) * static_cast<float>(n + 1);
  for (float& w : result.weight.values()) w += 1.0F;
  return result;
}

std::vector<Rows> rows_of_all_lengths(int64_t rows) {
  std::vector<Rows> all;
  for (int64_t columns : kLengths) all.push_back(random_rows(rows, columns, 1.0));
  return all;
}

/// What a formula for the factor of a row gives: from the sum of its squares and its length.
using Factor = std::function<double(double squares, double columns)>;

struct Results {
  std::vector<double> factors;  // [rows]
  std::vector<double> y;        // [rows, columns]
};

Results results_of(const Rows& rows, const Factor& factor) {
  Results results;
  for (int64_t n = 0; n < rows.x.size(0); ++n) {
    const std::span<const float> x = rows.x.rows(n, n + 1).values();
    double squares = 0;
    for (double value : x) squares += value * value;
    results.factors.push_back(factor(squares, static_cast<double>(x.size())));
    for (size_t c = 0; c < x.size(); ++c)
      results.y.push_back(x[c] * results.factors.back() * rows.weight.values()[c]);
  }
  return results;
}

struct Formula {
  std::string mistake;
  Factor factor;
};

std::vector<Formula> mistakes(double epsilon) {
  return {
      {"the sum of the squares was not divided by the number of columns: it is the root of their "
       "mean",
       [=](double squares, double) { return 1 / std::sqrt(squares + epsilon); }},
      {"epsilon is missing: it is added to the mean of the squares, under the root",
       [](double squares, double n) { return 1 / std::sqrt(squares / n); }},
      {"epsilon is added after the root: it belongs under it",
       [=](double squares, double n) { return 1 / (std::sqrt(squares / n) + epsilon); }},
      {"epsilon is added to the sum of the squares: it is added to their mean",
       [=](double squares, double n) { return 1 / std::sqrt((squares + epsilon) / n); }},
      {"the root is missing: 1 / sqrt(mean + epsilon)",
       [=](double squares, double n) { return 1 / (squares / n + epsilon); }},
      {"this is the root of the mean itself: inverse_rms is 1 divided by it",
       [=](double squares, double n) { return std::sqrt(squares / n + epsilon); }},
  };
}

double right_factor(double squares, double columns, double epsilon) {
  return 1 / std::sqrt(squares / columns + epsilon);
}

Expected expected_factors(const Rows& rows, double epsilon) {
  const Factor right = [=](double squares, double n) { return right_factor(squares, n, epsilon); };
  Expected expected{.what = "inverse_rms",
                    .values = results_of(rows, right).factors,
                    .tolerance = {},
                    .name = [](size_t n) { return fmt::format("row {}", n); },
                    .mistakes = {},
                    .if_not_finite =
                        "inverse_rms is not finite: was memory read that holds no "
                        "number, or divided by 0?"};
  expected.tolerance = lab::grading::relative_tolerance(expected.values, kTolerance, 0);
  for (const Formula& formula : mistakes(epsilon))
    expected.mistakes.push_back({results_of(rows, formula.factor).factors, formula.mistake});
  return expected;
}

Expected expected_y(const Rows& rows, double epsilon) {
  const auto columns = static_cast<size_t>(rows.columns());
  const Factor right = [=](double squares, double n) { return right_factor(squares, n, epsilon); };
  const Results results = results_of(rows, right);
  Expected expected{
      .what = "y",
      .values = results.y,
      .tolerance = {},
      .name = [columns](
                  size_t i) { return fmt::format("row {}, column {}", i / columns, i % columns); },
      .mistakes = {},
      .if_not_finite = "y is not finite: was memory read that holds no number?"};
  expected.tolerance = lab::grading::relative_tolerance(expected.values, kTolerance, 1e-3);
  std::vector<double> without_weight;
  std::vector<double> weight_of_row;
  for (size_t i = 0; i < results.y.size(); ++i) {
    without_weight.push_back(results.y[i] / rows.weight.values()[i % columns]);
    weight_of_row.push_back(without_weight.back() * rows.weight.values()[i / columns % columns]);
  }
  expected.mistakes = {
      {without_weight, "y: the factor weight[c] is missing"},
      {weight_of_row, "y: the weight of the row was taken; there is one weight per column"},
  };
  return expected;
}

void expect_right(const std::vector<Rows>& all, double epsilon, int64_t fence = 0) {
  Parcel input;
  input.set("count", static_cast<double>(all.size()));
  input.set("epsilon", epsilon);
  input.set("fence", static_cast<double>(fence));
  for (size_t k = 0; k < all.size(); ++k) {
    input.set(fmt::format("x.{}", k), all[k].x);
    input.set(fmt::format("weight.{}", k), all[k].weight);
  }
  const Parcel result = run_kernel("rmsnorm", input);
  std::vector<LengthResult> factors;
  std::vector<LengthResult> y;
  for (size_t k = 0; k < all.size(); ++k) {
    factors.push_back({all[k].columns(),
                       to_doubles(result.tensor(fmt::format("inverse_rms.{}", k))),
                       expected_factors(all[k], epsilon)});
    y.push_back({all[k].columns(), to_doubles(result.tensor(fmt::format("y.{}", k))),
                 expected_y(all[k], epsilon)});
  }
  expect_lengths(factors);
  expect_lengths(y);
  for (size_t k = 0; k < all.size(); ++k)
    expect_shared_row(result, fmt::format(".{}", k), all[k].columns());
}

TEST(TaskC1, RowsOfAllLengths) { expect_right(rows_of_all_lengths(5), 1e-5); }

TEST(TaskC1, OneRow) { expect_right(rows_of_all_lengths(1), 1e-5); }

TEST(TaskC1, NoRows) { expect_right({random_rows(0, 288, 1.0)}, 1e-5); }

TEST(TaskC1, MoreRowsThanThreads) { expect_right({random_rows(150, 40, 1.0)}, 1e-5); }

TEST(TaskC1, EpsilonIsAddedToTheMean) {
  // As large as the mean of the squares, so that its place matters.
  expect_right({random_rows(3, 100, 0.5), random_rows(3, 300, 0.5)}, 0.125);
}

TEST(TaskC1, NothingElseIsWritten) { expect_right(rows_of_all_lengths(3), 1e-5, 64); }

}  // namespace
}  // namespace lab01cuda
