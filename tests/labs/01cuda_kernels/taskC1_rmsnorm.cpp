// Task C1: RMSNorm.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/labs/01cuda_kernels/judge.h"
#include "tests/labs/01cuda_kernels/machine.h"

namespace lab01cuda::task_c1 {
namespace {

struct Rows {
  Tensor x;       // [rows, columns]
  Tensor weight;  // [columns]
  double epsilon;

  size_t count() const { return static_cast<size_t>(x.size(0)); }
  size_t columns() const { return static_cast<size_t>(x.size(1)); }
};

/// Values of both signs, weights that are not 1. The rows have mean squares of any size: in some
/// epsilon does not matter, in some it is all there is.
Rows draw_rows(int64_t count, int64_t columns, double epsilon, uint64_t number) {
  const uint64_t seed = 1000 * lab::grading::scenario_seed() + number;
  Rows rows{.x = draw_tensor({count, columns}, 1.0, seed),
            .weight = draw_tensor({columns}, 0.5, seed + 1),
            .epsilon = static_cast<float>(epsilon)};
  const double root = std::sqrt(epsilon);
  const double sizes[] = {1, 1.5 * root, 30, 0.4 * root, 0};
  for (int64_t n = 0; n < count; ++n) {
    lab::Tensor row = rows.x.rows(n, n + 1);
    for (float& value : row.values())
      value = static_cast<float>((value + 0.3) * sizes[(static_cast<uint64_t>(n) + number) % 5]);
  }
  for (float& w : rows.weight.values()) w += 1.0F;
  return rows;
}

/// The factor of a row, from the sum of its squares `s`, its length `n` and epsilon `e`.
using Factor = double (*)(double s, double n, double e);

double right_factor(double s, double n, double e) { return 1 / std::sqrt(s / n + e); }

const std::pair<const char*, Factor> kWrongFactors[] = {
    {"epsilon times the number of columns is too large for a float: divide the sum of the squares "
     "instead",
     [](double s, double n, double e) { return n * e > 3.4e38 ? 0 : right_factor(s, n, e); }},
    {"on the way to the sum of the squares a number was larger than the sum and too large for a "
     "float: add each square only once",
     [](double s, double n, double e) { return 32 * s > 3.4e38 ? 0 : right_factor(s, n, e); }},
    {"the sum of the squares was not divided by the number of columns: take the root of their mean",
     [](double s, double, double e) { return 1 / std::sqrt(s + e); }},
    {"the sum of the squares was divided by the number of threads: divide by that of the columns",
     [](double s, double, double e) { return 1 / std::sqrt(s / kThreads + e); }},
    {"epsilon is missing: it is added to the mean of the squares, under the root",
     [](double s, double n, double) { return 1 / std::sqrt(s / n); }},
    {"epsilon is added after the root: it belongs under it",
     [](double s, double n, double e) { return 1 / (std::sqrt(s / n) + e); }},
    {"epsilon is added to the sum of the squares: add it to their mean",
     [](double s, double n, double e) { return 1 / std::sqrt((s + e) / n); }},
    {"epsilon is used as a lower bound of the mean: it must be added, even to a larger mean",
     [](double s, double n, double e) { return 1 / std::sqrt(std::max(s / n, e)); }},
    {"the root is missing: 1 / sqrt(mean + epsilon)",
     [](double s, double n, double e) { return 1 / (s / n + e); }},
    {"this is the root of the mean itself: inverse_rms is 1 divided by it",
     [](double s, double n, double e) { return std::sqrt(s / n + e); }},
};

/// inverse_rms [rows], or y [rows, columns], as each thread sees its part of the row.
Numbers results_of(const Rows& rows, bool y, Factor factor, const RowPart& part,
                   bool squares = true) {
  Numbers results;
  for (size_t n = 0; n < rows.count(); ++n) {
    const float* x = rows.x.data() + n * rows.columns();
    Numbers factors(x, x + rows.columns());
    for (double& value : factors) value *= squares ? value : 1;
    factors = sums_of(part, factors);
    for (double& sum : factors)
      sum = factor(sum, static_cast<double>(rows.columns()), rows.epsilon);
    if (!y) results.push_back(factors[0]);
    for (size_t c = 0; y && c < rows.columns(); ++c)
      results.push_back(x[c] * factors[c % kThreads] * rows.weight.values()[c]);
  }
  return results;
}

std::vector<Mistake> mistakes(const Rows& rows, bool y) {
  std::vector<Mistake> all;
  for (const auto& [message, factor] : kWrongFactors)
    all.push_back({results_of(rows, y, factor, {}), message});
  for (const RowPart& part : parts_of_row(rows.columns()))
    all.push_back({results_of(rows, y, right_factor, part), part.mistake});
  all.push_back({results_of(rows, y, right_factor, {}, false),
                 "the numbers are added up, not their squares"});
  if (!y) return all;
  Numbers without = results_of(rows, y, right_factor, {});
  Numbers of_row = without;
  for (size_t i = 0; i < without.size(); ++i) {
    without[i] /= rows.weight.values()[i % rows.columns()];
    of_row[i] = without[i] * rows.weight.values()[i / rows.columns() % rows.columns()];
  }
  Numbers factor_first;  // in float
  const Numbers factors = results_of(rows, false, right_factor, {});
  for (size_t i = 0; i < without.size(); ++i) {
    const float weight = rows.weight.values()[i % rows.columns()];
    const float product = static_cast<float>(factors[i / rows.columns()]) * weight;
    factor_first.push_back(rows.x.values()[i] * product);
  }
  all.push_back({factor_first,
                 "y: inverse_rms * weight is too small for a float, though y is not: multiply from "
                 "left to right"});
  all.push_back({without, "y: the factor weight[c] is missing"});
  all.push_back({of_row, "y: the weight of the row was taken; there is one weight per column"});
  return all;
}

Expected expected(const Rows& rows, bool y) {
  const Numbers values = results_of(rows, y, right_factor, {});
  const std::string what = y ? "y" : "inverse_rms";
  const bool is_large = lab::grading::largest_magnitude(values) > 1e20;
  return {.what = what,
          .values = values,
          // A sum of up to some thousand squares in float, each thread's in order.
          .tolerance = lab::grading::relative_tolerance(values, 1e-5, 0),
          .name = y ? place_in_row(rows.columns(), "column") : place_in_row(1),
          .mistakes = [&rows, y] { return mistakes(rows, y); },
          .if_not_finite = what + (is_large ? " is not finite: x * weight is too large for a "
                                              "float, though y is not"
                                            : " is not finite: is epsilon missing, so that a row "
                                              "of zeros is divided by 0? Or was memory read that "
                                              "holds no number?")};
}

void judge(const std::vector<Rows>& all, const Options& options = {}) {
  Options of_y = options;
  of_y.lesson =
      "inverse_rms is right, y is not: does every thread have the factor of the row? After "
      "__shfl_down_sync, for instance, only lane 0 has the sum";
  std::vector<KernelCall> calls;
  for (const Rows& rows : all) {
    const auto judge_rows = [&](const Parcel& result) {
      const Numbers factors = to_doubles(result.tensor("inverse_rms"));
      const auto was_written = [](double factor) { return factor != double{kUntouched}; };
      if (rows.columns() == 0 && std::ranges::any_of(factors, was_written))
        stop("without a column there is nothing to write, but inverse_rms of a row was written");
      if (rows.x.numel() == 0) return;
      expect_numbers(factors, expected(rows, false), options);
      expect_numbers(to_doubles(result.tensor("y")), expected(rows, true), of_y);
      expect_shared_row(result, rows.columns());
    };
    calls.push_back({fmt::format("x [{}, {}]", rows.count(), rows.columns()), rows.x.numel() > 0,
                     Parcel(), judge_rows});
    calls.back().input.set("x", rows.x);
    calls.back().input.set("weight", rows.weight);
    calls.back().input.set("epsilon", rows.epsilon);
  }
  judge_kernels("rmsnorm", calls, options);
}

TEST(TaskC1, RowsOfAnyLength) {
  // The first is neither short nor a multiple of anything: most mistakes show, and differ. The
  // longest does not fit into any shared memory.
  std::vector<Rows> all;
  for (int64_t columns : {1000, 1,   31,  32,   33,   63,   64,      96,   127, 128, 129, 160, 256,
                          257,  288, 511, 1024, 1537, 4096, 140'001, 2048, 385, 128, 100, 33,  1})
    all.push_back(draw_rows(columns > 2000 ? 2 : 5, columns, columns % 2 == 0 ? 1e-5 : 1e-3,
                            10 * all.size()));
  judge(all);
}

TEST(TaskC1, AnyNumberOfRows) {
  judge({draw_rows(1, 40, 1e-5, 0), draw_rows(150, 40, 1e-5, 10), draw_rows(0, 40, 1e-5, 20),
         draw_rows(3, 40, 1e-5, 30), draw_rows(3, 0, 1e-5, 40), draw_rows(1, 40, 1e-5, 50)});
  judge({draw_rows(300'003, 1, 1e-5, 60)}, {.block_step = 983});
}

TEST(TaskC1, EpsilonIsAddedToTheMean) {
  judge({draw_rows(5, 100, 0.125, 20), draw_rows(5, 100, 1e-6, 20), draw_rows(5, 100, 1e-3, 20),
         draw_rows(5, 100, 1e-12, 20)});
}

TEST(TaskC1, LargeNumbers) {
  const Rows rows = draw_rows(3, 100, 1e-5, 0);
  for (float& x : rows.x.values()) x = std::copysign(1e16F, x);
  for (float& weight : rows.weight.values()) weight *= 1e25F;
  Rows small_weights = draw_rows(3, 100, 1e-5, 0);
  small_weights.x = rows.x;
  for (float& weight : small_weights.weight.values()) weight *= 1e-26F;
  // The sum of the squares is 2.9e38, and a float at most 3.4e38.
  const Rows largest = draw_rows(3, 100, 1e-5, 0);
  for (float& x : largest.x.values()) x = std::copysign(1.7e18F, x);
  judge({rows, small_weights, largest});
}

TEST(TaskC1, LargeEpsilon) {
  Rows rows = draw_rows(5, 100, 1e-5, 20);
  rows.epsilon = 1e37F;
  judge({rows});
}

TEST(TaskC1, NothingElseIsTouched) {
  for (const int fence : kFences)
    judge({draw_rows(3, 203, 1e-5, 0), draw_rows(3, 1, 1e-5, 0), draw_rows(3, 1000, 1e-5, 0)},
          {.fence = fence});
}

}  // namespace
}  // namespace lab01cuda::task_c1
