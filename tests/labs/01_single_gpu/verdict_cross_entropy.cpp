// Verdict on task 1a: the loss of one prediction and its gradient.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "common/grading/verdict.h"
#include "tests/labs/01_single_gpu/random_input.h"
#include "tests/labs/01_single_gpu/reference.h"

namespace lab01 {
namespace {

using lab::Tensor;
using lab::grading::Expected;
using lab::grading::Parcel;
using reference::Softmax;

// float has 24 bits: one rounding is 6e-8 of a number. A sum of up to some thousand exponentials in
// plain float order stays below 1e-5; a mistake in the formula is larger by far.
constexpr double kTolerance = 1e-5;

/// Rows of scores with a target and a scale each, and everything one can compute from them.
struct Rows {
  Tensor logits;  // [N, V]
  std::vector<double> targets;
  std::vector<double> scales;

  size_t count() const { return targets.size(); }
  size_t vocab() const { return static_cast<size_t>(logits.size(-1)); }
  std::span<float> row(size_t n) const { return logits.values().subspan(n * vocab(), vocab()); }
  double target_score(size_t n) const { return row(n)[static_cast<size_t>(targets[n])]; }

  /// One number per row.
  using OfRow = std::function<double(size_t n, const Softmax&)>;
  std::vector<double> per_row(const OfRow& value) const {
    std::vector<double> values;
    for (size_t n = 0; n < count(); ++n) values.push_back(value(n, Softmax(row(n))));
    return values;
  }
  /// One number per score: p its probability, y 1 for the target and else 0, c the row's scale.
  using OfScore = std::function<double(double p, double y, double c)>;
  std::vector<double> per_score(const OfScore& value) const {
    std::vector<double> values;
    for (size_t n = 0; n < count(); ++n) {
      const Softmax softmax(row(n));
      for (size_t v = 0; v < vocab(); ++v)
        values.push_back(value(softmax.probabilities[v],
                               static_cast<double>(v) == targets[n] ? 1.0 : 0.0, scales[n]));
    }
    return values;
  }
};

Rows random_rows(int64_t count, int64_t vocab, double spread, uint64_t seed) {
  Rows rows{.logits = random_tensor({count, vocab}, spread, seed),
            .targets = {},
            .scales = std::vector<double>(static_cast<size_t>(count), 1.0)};
  // Walks over the vocabulary, first and last token included.
  for (int64_t n = 0; n < count; ++n)
    rows.targets.push_back(static_cast<double>(n == 1 ? vocab - 1 : n * 7 % vocab));
  return rows;
}

Expected losses(const Rows& rows) {
  const auto loss = [&](size_t n, const Softmax& s) {
    return s.log_sum_exp - rows.target_score(n);
  };
  const auto probability = [&](size_t n, const Softmax& s) {
    return s.probabilities[static_cast<size_t>(rows.targets[n])];
  };
  const auto largest = [&](size_t n) { return double{*std::ranges::max_element(rows.row(n))}; };
  Expected expected{.what = "the loss",
                    .values = rows.per_row(loss),
                    .tolerance = {},
                    .name = [](size_t n) { return "row " + std::to_string(n); },
                    .mistakes = {},
                    .if_not_finite = ""};
  expected.tolerance = lab::grading::relative_tolerance(expected.values, kTolerance, 1.0);
  expected.mistakes = {
      {rows.per_row(probability),
       "the loss: this is the probability of the target; it should be minus its logarithm"},
      {rows.per_row([&](size_t n, const Softmax& s) { return -loss(n, s); }),
       "the loss: the sign is wrong; it is minus the logarithm of a probability, never negative"},
      {rows.per_row([&](size_t n, const Softmax& s) { return loss(n, s) * rows.scales[n]; }),
       "the loss is multiplied by scale; scale belongs to the gradient only"},
      {rows.per_row([&](size_t n, const Softmax& s) { return loss(n, s) / std::log(2.0); }),
       "the loss is in bits; use the natural logarithm"},
      {rows.per_row([&](size_t n, const Softmax& s) { return loss(n, s) - largest(n); }),
       "the loss: the largest score is taken out of the sum, but not of the target's score"},
      {rows.per_row([&](size_t n, const Softmax& s) { return loss(n, s) + largest(n); }),
       "the loss: the largest score is taken out of the target's score, but not of the sum"},
      {rows.per_row([&](size_t, const Softmax& s) { return s.log_sum_exp; }),
       "the loss: this is log sum exp alone; the target's score must be subtracted"},
      {rows.per_row([&](size_t n, const Softmax& s) {
         return static_cast<float>(s.log_sum_exp) - static_cast<float>(rows.target_score(n));
       }),
       "the loss has lost its digits to rounding: near 10,000 floats are 0.001 apart; subtract the "
       "largest score from the target's score before anything is added to it (section 2.3)"},
  };
  return expected;
}

Expected gradients(const Rows& rows) {
  const auto vocab = rows.vocab();
  Expected expected{
      .what = "the gradient",
      .values = rows.per_score([](double p, double y, double c) { return c * (p - y); }),
      // Of a probability and of the onehot vector, each rounded: relative to scale.
      .tolerance = rows.per_score(
          [](double p, double y, double c) { return std::abs(c) * (kTolerance * (p + y) + 1e-7); }),
      .name =
          [vocab](size_t i) {
            return "row " + std::to_string(i / vocab) + ", token " + std::to_string(i % vocab);
          },
      .mistakes = {},
      .if_not_finite = ""};
  const std::vector<double> untouched = lab::grading::to_doubles(rows.logits);
  expected.mistakes = {
      {untouched,
       "the gradient: the logits were left as they came in; on return they must hold "
       "scale * (softmax - onehot)"},
      {rows.per_score([](double p, double, double c) { return c * p; }),
       "the gradient: this is the softmax; subtract 1 from the target's probability (onehot)"},
      {rows.per_score([](double p, double y, double c) { return c * (y - p); }),
       "the gradient: the sign is wrong; it is softmax minus onehot, not onehot minus softmax"},
      {rows.per_score([](double p, double y, double) { return p - y; }),
       "the gradient is not multiplied by scale"},
      {rows.per_score([](double p, double y, double c) { return c * p - y; }),
       "the gradient: the softmax is multiplied by scale, but what is subtracted from the target's "
       "entry is not"},
      {rows.per_score([](double p, double y, double c) { return p - c * y; }),
       "the gradient: what is subtracted from the target's entry is multiplied by scale, but the "
       "softmax is not"},
      {rows.per_score([](double p, double y, double c) { return c * c * (p - y); }),
       "the gradient is multiplied by scale twice"},
  };
  return expected;
}

Parcel run(const Rows& rows) {
  Parcel input;
  input.set("logits", rows.logits);
  input.set("targets", rows.targets);
  input.set("scales", rows.scales);
  Parcel result = lab::grading::student("cross_entropy", input);
  if (result.number("fence_broken") != 0)
    lab::grading::stop("numbers before or behind the span of logits were overwritten");
  return result;
}

void expect_losses(const Parcel& result, const Rows& rows, const std::string& if_not_finite = "") {
  Expected expected = losses(rows);
  expected.if_not_finite = if_not_finite;
  lab::grading::expect(result.numbers("losses"), expected);
}

void expect_gradients(const Parcel& result, const Rows& rows,
                      const std::string& if_not_finite = "") {
  Expected expected = gradients(rows);
  expected.if_not_finite = if_not_finite;
  lab::grading::expect(lab::grading::to_doubles(result.tensor("gradients")), expected);
}

TEST(Task1a, ExampleOfSectionFour) {
  const float ln2 = std::log(2.0F);
  const float ln4 = std::log(4.0F);
  const Rows rows{.logits = Tensor::from({ln4, ln2, 0, 0, ln4, ln2, 0, 0}, {2, 4}),
                  .targets = {1, 3},
                  .scales = {1, 1}};
  const Parcel result = run(rows);
  expect_losses(result, rows);
  expect_gradients(result, rows);
}

TEST(Task1a, LossIsMinusLogSoftmax) {
  for (const int64_t vocab : {7, 1000}) {
    const Rows rows = random_rows(16, vocab, 4.0, 11);
    expect_losses(run(rows), rows);
  }
}

TEST(Task1a, GradientIsSoftmaxMinusOnehot) {
  for (const int64_t vocab : {7, 1000}) {
    const Rows rows = random_rows(16, vocab, 4.0, 12);
    expect_gradients(run(rows), rows);
  }
}

TEST(Task1a, ScaleIsAFactorOfTheGradientOnly) {
  Rows rows = random_rows(6, 9, 2.0, 13);
  rows.scales = {0.5, 3.0, 1.0 / 3.0, 1e-3, 1.0, 0.0};
  const Parcel result = run(rows);
  expect_losses(result, rows);
  expect_gradients(result, rows);
}

TEST(Task1a, FiniteForLargeScores) {
  const float big = 10'000.0F;
  const Rows rows{.logits = Tensor::from({big, big - 1, 0, -big,           //
                                          big, big, big, big,              //
                                          -big, -big, -big - 2, -big - 1,  //
                                          100, 99, 98, 97},
                                         {4, 4}),
                  .targets = {1, 0, 2, 3},
                  .scales = {1, 1, 1, 1}};
  const Parcel result = run(rows);
  const std::string advice =
      "not finite for scores around 10,000: exp overflows; subtract the row's largest score from "
      "all scores first (section 2.3)";
  expect_losses(result, rows, advice);
  expect_gradients(result, rows, advice);
}

TEST(Task1a, FiniteForAnImprobableTarget) {
  // The target's probability is e^-140 and e^-20000: rounded to 0, its logarithm would be -inf.
  const Rows rows{.logits = Tensor::from({70, -70, 3, 10'000, -10'000, 0}, {2, 3}),
                  .targets = {1, 1},
                  .scales = {1, 1}};
  expect_losses(run(rows), rows,
                "the loss is not finite where the target is improbable: its probability is rounded "
                "to 0; compute log(sum) and the target's score apart, not the log of a probability "
                "(section 2.3)");
}

TEST(Task1a, SeveralThreadsCallItAtOnce) {
  const Rows rows = random_rows(64, 4096, 4.0, 14);
  Parcel input;
  input.set("logits", rows.logits);
  input.set("targets", rows.targets);
  input.set("repeat", 20);
  const double others = lab::grading::student("cross_entropy_by_threads", input).number("others");
  if (others > 0)
    lab::grading::stop(
        "cross_entropy gives other results when several threads call it at once, each with a row "
        "of its own: static and global variables are shared by all threads; use nothing but the "
        "span and local variables\nother results in " +
        std::to_string(static_cast<int>(others)) + " of 64 rows, expected 0");
}

TEST(Task1a, OneTokenOnlyIsCertain) {
  const Rows rows{.logits = Tensor::from({3.5F}, {1, 1}), .targets = {0}, .scales = {1}};
  const Parcel result = run(rows);
  expect_losses(result, rows);
  expect_gradients(result, rows);
}

}  // namespace
}  // namespace lab01
