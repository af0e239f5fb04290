// Verdict on task C2: softmax, cross-entropy and its gradient in one kernel.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
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

// As in lab 01: a sum of some thousand exponentials in float.
constexpr double kTolerance = 1e-5;

constexpr double kNone = -1;  // target of a position that predicts nothing

struct Rows {
  Tensor logits;                // [rows, vocab]
  std::vector<double> targets;  // [rows]

  int64_t vocab() const { return logits.size(1); }
};

/// Targets walk over the vocabulary, first and last token included.
Rows random_rows(int64_t rows, int64_t vocab, double spread) {
  Rows result{.logits = lab01::random_tensor({rows, vocab}, spread, 61), .targets = {}};
  for (int64_t n = 0; n < rows; ++n)
    result.targets.push_back(static_cast<double>(n == 1 ? vocab - 1 : n * 77 % vocab));
  return result;
}

std::vector<Rows> rows_of_all_lengths(int64_t rows, double spread) {
  std::vector<Rows> all;
  for (int64_t vocab : kLengths) all.push_back(random_rows(rows, vocab, spread));
  return all;
}

/// What there is to know of a row with a target: its softmax, and the log of its sum.
struct Softmax {
  explicit Softmax(std::span<const float> scores) : p(scores.begin(), scores.end()) {
    const double largest = *std::ranges::max_element(p);
    double sum = 0;
    for (double& value : p) sum += value = std::exp(value - largest);
    for (double& value : p) value /= sum;
    log_sum_exp = largest + std::log(sum);
  }
  std::vector<double> p;
  double log_sum_exp = 0;
};

/// One number per row that has a target, 0 for the others.
std::vector<double> per_row(const Rows& rows,
                            const std::function<double(const Softmax&, double score)>& value) {
  std::vector<double> values;
  for (size_t n = 0; n < rows.targets.size(); ++n) {
    const auto row = static_cast<int64_t>(n);
    const std::span<const float> scores = rows.logits.rows(row, row + 1).values();
    const auto target = static_cast<size_t>(std::max(rows.targets[n], 0.0));
    values.push_back(rows.targets[n] == kNone ? 0 : value(Softmax(scores), scores[target]));
  }
  return values;
}

/// One number per score: p its probability, y 1 for the target and else 0.
using OfScore = std::function<double(double p, double y, double score)>;
std::vector<double> per_score(const Rows& rows, const OfScore& value) {
  std::vector<double> values;
  for (size_t n = 0; n < rows.targets.size(); ++n) {
    const auto row = static_cast<int64_t>(n);
    const std::span<const float> scores = rows.logits.rows(row, row + 1).values();
    const Softmax softmax(scores);
    for (size_t v = 0; v < scores.size(); ++v) {
      const double y = static_cast<double>(v) == rows.targets[n] ? 1 : 0;
      values.push_back(rows.targets[n] == kNone ? 0 : value(softmax.p[v], y, scores[v]));
    }
  }
  return values;
}

constexpr const char* kNotFinite =
    "not finite: exp overflows for large scores, and -infinity less -infinity is no number; take "
    "each score relative to the row's largest, and let a thread without scores begin with a "
    "largest that is finite";

Expected expected_losses(const Rows& rows, double scale) {
  const auto right = [](const Softmax& s, double score) { return s.log_sum_exp - score; };
  Expected expected{.what = "the losses",
                    .values = per_row(rows, right),
                    .tolerance = {},
                    .name = [](size_t n) { return fmt::format("row {}", n); },
                    .mistakes = {},
                    .if_not_finite = kNotFinite};
  expected.tolerance = lab::grading::relative_tolerance(expected.values, kTolerance, 1.0);
  expected.mistakes = {
      {per_row(rows, [=](const Softmax& s, double score) { return scale * right(s, score); }),
       "the losses are multiplied by scale; scale belongs to the gradient only"},
      {per_row(rows, [=](const Softmax& s, double score) { return -right(s, score); }),
       "the losses: the sign is wrong; a loss is minus the logarithm of a probability"},
      {per_row(rows,
               [](const Softmax& s, double score) { return std::exp(score - s.log_sum_exp); }),
       "the losses: these are probabilities; a loss is minus the logarithm of one"},
      {per_row(rows, [](const Softmax& s, double) { return s.log_sum_exp; }),
       "the losses: this is log sum exp alone; the target's score must be subtracted"},
      {per_row(rows, [](const Softmax& s,
                        double score) { return s.log_sum_exp - std::exp(score - s.log_sum_exp); }),
       "the losses: the target's score was read after it had been overwritten"},
      {per_row(rows,
               [](const Softmax& s, double score) {
                 return static_cast<float>(s.log_sum_exp) - static_cast<float>(score);
               }),
       "the losses have lost their digits to rounding: near 10,000 floats are 0.001 apart; "
       "subtract "
       "the largest score from the target's score before anything is added to it (section 4.2)"},
  };
  return expected;
}

Expected expected_gradients(const Rows& rows, double scale) {
  const auto vocab = static_cast<size_t>(rows.vocab());
  Expected expected{
      .what = "the gradient",
      .values = per_score(rows, [=](double p, double y, double) { return scale * (p - y); }),
      .tolerance =
          per_score(rows, [=](double p, double y,
                              double) { return std::abs(scale) * (kTolerance * (p + y) + 1e-7); }),
      .name = [vocab](size_t i) { return fmt::format("row {}, token {}", i / vocab, i % vocab); },
      .mistakes = {},
      .if_not_finite = kNotFinite};
  expected.mistakes = {
      {to_doubles(rows.logits),
       "the gradient: the logits were left as they came in; on return they hold scale * (softmax - "
       "onehot)"},
      {per_score(rows, [=](double p, double, double) { return scale * p; }),
       "the gradient: this is the softmax; subtract 1 from the target's probability (onehot)"},
      {per_score(rows, [=](double p, double y, double) { return scale * (y - p); }),
       "the gradient: the sign is wrong; it is softmax minus onehot"},
      {per_score(rows, [=](double p, double y, double) { return p - y; }),
       "the gradient is not multiplied by scale"},
      {per_score(rows, [=](double p, double y, double) { return scale * p - y; }),
       "the gradient: the softmax is multiplied by scale, the 1 that is subtracted is not"},
  };
  return expected;
}

struct Results {
  Parcel parcel;
  std::vector<LengthResult> losses;
  std::vector<LengthResult> gradients;
};

Results run(const std::vector<Rows>& all, double scale, int64_t fence = 0) {
  Parcel input;
  input.set("count", static_cast<double>(all.size()));
  input.set("scale", scale);
  input.set("fence", static_cast<double>(fence));
  for (size_t k = 0; k < all.size(); ++k) {
    input.set(fmt::format("logits.{}", k), all[k].logits);
    input.set(fmt::format("targets.{}", k), all[k].targets);
  }
  Results results{
      .parcel = run_kernel("softmax_cross_entropy", input), .losses = {}, .gradients = {}};
  const Parcel& result = results.parcel;
  for (size_t k = 0; k < all.size(); ++k) {
    results.losses.push_back({all[k].vocab(),
                              to_doubles(result.tensor(fmt::format("losses.{}", k))),
                              expected_losses(all[k], scale)});
    results.gradients.push_back({all[k].vocab(),
                                 to_doubles(result.tensor(fmt::format("logits.{}", k))),
                                 expected_gradients(all[k], scale)});
  }
  return results;
}

void expect_right(const std::vector<Rows>& all, double scale, int64_t fence = 0) {
  const Results results = run(all, scale, fence);
  expect_lengths(results.losses);
  expect_lengths(results.gradients);
  for (size_t k = 0; k < all.size(); ++k)
    expect_shared_row(results.parcel, fmt::format(".{}", k), all[k].vocab());
}

TEST(TaskC2, RowsOfAllLengths) { expect_right(rows_of_all_lengths(5, 4.0), 1.0); }

TEST(TaskC2, OneRow) { expect_right(rows_of_all_lengths(1, 4.0), 1.0); }

TEST(TaskC2, NoRows) { expect_right({random_rows(0, 288, 4.0)}, 1.0); }

TEST(TaskC2, MoreRowsThanThreads) { expect_right({random_rows(150, 40, 4.0)}, 1.0); }

TEST(TaskC2, ScaleIsAFactorOfTheGradientOnly) {
  expect_right({random_rows(4, 100, 3.0), random_rows(4, 300, 3.0)}, 0.125);
}

TEST(TaskC2, TheLargestScoreMayComeLast) {
  // Each row once falling, once rising: then every score is the largest so far.
  Rows falling = random_rows(3, 1000, 8.0);
  Rows rising = random_rows(3, 1000, 8.0);
  for (int64_t n = 0; n < 3; ++n) {
    std::ranges::sort(rising.logits.rows(n, n + 1).values());
    std::ranges::sort(falling.logits.rows(n, n + 1).values(), std::greater<>());
  }
  const Results results = run({falling, rising}, 1.0);
  const auto is_right = [&](size_t k) {
    return lab::grading::difference(results.losses[k].got, results.losses[k].expected).empty();
  };
  if (is_right(0) && !is_right(1))
    lab::grading::stop(
        "rows whose scores fall are right, rows whose scores rise are wrong: when a larger score "
        "comes, the sum so far is relative to the old largest; multiply it by exp(old - new)");
  expect_lengths(results.losses);
  expect_lengths(results.gradients);
}

TEST(TaskC2, FiniteForLargeScores) {
  const float big = 10'000.0F;
  const Rows few{.logits = Tensor::from({big, big - 1, 0, -big,           //
                                         big, big, big, big,              //
                                         -big, -big, -big - 2, -big - 1,  //
                                         100, 99, 98, 97},
                                        {4, 4}),
                 .targets = {1, 0, 2, 3}};
  Rows many = random_rows(3, 300, 10'000.0);
  Rows low = random_rows(3, 300, 2.0);
  for (float& score : low.logits.values()) score -= big;
  expect_right({few, many, low}, 1.0);
}

TEST(TaskC2, NothingToPredict) {
  Rows rows = random_rows(5, 200, 4.0);
  rows.targets = {kNone, 3, kNone, 199, kNone};
  const Results results = run({rows}, 0.5);
  const std::vector<double>& got = results.gradients[0].got;
  for (size_t i = 0; i < 200; ++i)
    if (got[i] == double{rows.logits.values()[i]} && got[i] != 0)
      lab::grading::stop(
          "a row that predicts nothing (target -1) still holds its scores, which the backward pass "
          "would take for gradients: fill it with 0");
  if (std::abs(got[0]) > 0)
    lab::grading::stop("a row that predicts nothing (target -1) has a gradient: fill it with 0");
  if (results.losses[0].got[0] != 0)
    lab::grading::stop("a row that predicts nothing (target -1) has a loss other than 0");
  expect_lengths(results.losses);
  expect_lengths(results.gradients);
}

TEST(TaskC2, NothingElseIsWritten) { expect_right(rows_of_all_lengths(3, 4.0), 1.0, 64); }

}  // namespace
}  // namespace lab01cuda
