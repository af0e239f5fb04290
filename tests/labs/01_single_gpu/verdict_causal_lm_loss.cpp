// Verdict on task 1b: which positions count, against which token, divided by what.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "common/grading/verdict.h"
#include "tests/labs/01_single_gpu/random_input.h"
#include "tests/labs/01_single_gpu/reference.h"

namespace lab01 {
namespace {

using lab::Tensor;
using lab::TokenBatch;
using lab::grading::Expected;
using lab::grading::Functions;
using lab::grading::Parcel;
using reference::Softmax;

// The cross-entropies are exact to float64; what remains is one rounding of each gradient, or a sum
// of losses in float: see task 1a.
constexpr double kTolerance = 1e-5;

struct Case {
  Tensor logits;  // [B, T, V]
  TokenBatch batch;
  int64_t total_targets = 0;

  int64_t positions() const { return batch.batch * batch.length; }
  int64_t vocab() const { return logits.size(-1); }
  std::string name(size_t i) const {
    const auto position = static_cast<int64_t>(i) / vocab();
    return "row " + std::to_string(position / batch.length) + ", position " +
           std::to_string(position % batch.length);
  }
  int32_t token(int64_t position) const { return batch.tokens[static_cast<size_t>(position)]; }
};

/// Which token position i of the batch is scored against, if any.
using TargetOf = std::function<std::optional<int32_t>(int64_t i)>;

std::optional<int32_t> unless_padding(int32_t token) {
  return token == lab::kPadding ? std::nullopt : std::optional(token);
}

/// As it should be: position t against token t+1.
TargetOf next_token(const Case& c) {
  return [&c](int64_t i) -> std::optional<int32_t> {
    if ((i + 1) % c.batch.length == 0) return std::nullopt;
    return unless_padding(c.token(i + 1));
  };
}
/// No shift, in every position or in all but the last of a row.
TargetOf same_token(const Case& c, bool last_too) {
  return [&c, last_too](int64_t i) -> std::optional<int32_t> {
    if (!last_too && (i + 1) % c.batch.length == 0) return std::nullopt;
    return unless_padding(c.token(i));
  };
}
TargetOf previous_token(const Case& c) {
  return [&c](int64_t i) -> std::optional<int32_t> {
    if (i % c.batch.length == 0) return std::nullopt;
    return unless_padding(c.token(i - 1));
  };
}
/// Reads on from the last position of a row into the next row.
TargetOf across_rows(const Case& c) {
  return [&c](int64_t i) -> std::optional<int32_t> {
    if (i + 1 == c.positions()) return std::nullopt;
    return unless_padding(c.token(i + 1));
  };
}

struct Loss {
  double sum = 0;
  std::vector<double> gradients;  // of the sum
};

Loss loss_with(const Case& c, const TargetOf& target_of) {
  Loss loss;
  const auto vocab = static_cast<size_t>(c.vocab());
  for (int64_t i = 0; i < c.positions(); ++i) {
    const std::span<float> row = c.logits.values().subspan(static_cast<size_t>(i) * vocab, vocab);
    const std::optional<int32_t> target = target_of(i);
    const Softmax softmax(row);
    if (target) loss.sum += softmax.log_sum_exp - row[static_cast<size_t>(*target)];
    for (size_t v = 0; v < vocab; ++v) {
      const double onehot = target && static_cast<size_t>(*target) == v ? 1.0 : 0.0;
      loss.gradients.push_back(target ? softmax.probabilities[v] - onehot : 0.0);
    }
  }
  return loss;
}

std::vector<double> divided(std::vector<double> values, double by) {
  for (double& value : values) value /= by;
  return values;
}

/// A wrong choice of target or divisor, with the loss and gradients that come of it.
struct Suspicion {
  Loss loss;
  double divisor;
  std::string message;
};

std::vector<Suspicion> suspicions(const Case& c) {
  const auto total = static_cast<double>(c.total_targets);
  const auto own = static_cast<double>(c.batch.target_count());
  const auto all = static_cast<double>(c.positions());
  const auto all_but_last = static_cast<double>(c.batch.batch * (c.batch.length - 1));
  const Loss right = loss_with(c, next_token(c));
  const std::string no_shift =
      "the shift is missing: position t is scored against token t, which the model has seen; it "
      "predicts token t+1 (section 2.4)";
  return {
      {loss_with(c, same_token(c, true)), total, no_shift},
      {loss_with(c, same_token(c, false)), total, no_shift},
      {loss_with(c, previous_token(c)), total,
       "the shift goes the wrong way: position t is scored against token t-1; it predicts token "
       "t+1 (section 2.4)"},
      {loss_with(c, across_rows(c)), total,
       "the last position of a row is scored against the first token of the next row; it predicts "
       "nothing (section 2.4)"},
      {right, 1.0, "a sum instead of a mean: divide by total_targets (section 2.2)"},
      {right, own,
       "divided by this microbatch's own targets: divide by total_targets, those of the whole step "
       "(section 2.2)"},
      {right, all,
       "divided by the number of positions, padding and last ones included: divide by "
       "total_targets"},
      {right, all_but_last, "divided by B * (T-1), padding included: divide by total_targets"},
      {right, total * static_cast<double>(c.batch.batch),
       "divided by the batch size on top of total_targets"},
  };
}

Parcel run(const Case& c, const std::string& scenario = "causal_lm_loss") {
  Parcel input;
  input.set("logits", c.logits);
  input.set("tokens", c.batch);
  input.set("total_targets", static_cast<double>(c.total_targets));
  input.set("repeat", 10);
  return lab::grading::student(scenario, input, Functions::kGiven);
}

void expect_loss(const Parcel& result, const Case& c) {
  const double right = loss_with(c, next_token(c)).sum / static_cast<double>(c.total_targets);
  Expected expected{.what = "the returned loss",
                    .values = {right},
                    .tolerance = {kTolerance * right},
                    .name = {},
                    .mistakes = {},
                    .if_not_finite = ""};
  for (const Suspicion& s : suspicions(c))
    expected.mistakes.push_back({{s.loss.sum / s.divisor}, "the loss: " + s.message});
  lab::grading::expect(result.numbers("losses")[0], expected);
}

/// The gradients of positions [first, last) of the batch, or all.
void expect_gradients(const Parcel& result, const Case& c) {
  const Loss right = loss_with(c, next_token(c));
  const auto total = static_cast<double>(c.total_targets);
  Expected expected{
      .what = "the gradients",
      .values = divided(right.gradients, total),
      .tolerance = {kTolerance / total},  // an entry is a difference of numbers <= 1/n
      .name = [&c](size_t i) { return c.name(i); },
      .mistakes = {},
      .if_not_finite = ""};
  for (const Suspicion& s : suspicions(c))
    expected.mistakes.push_back(
        {divided(s.loss.gradients, s.divisor), "the gradients: " + s.message});
  lab::grading::expect(lab::grading::to_doubles(result.tensor("gradients")), expected);
}

/// Ends the test unless every position without a target has a gradient of exactly zero.
void expect_zero_without_target(const Parcel& result, const Case& c) {
  const std::vector<double> got = lab::grading::to_doubles(result.tensor("gradients"));
  const TargetOf target_of = next_token(c);
  for (size_t i = 0; i < got.size(); ++i) {
    const auto position = static_cast<int64_t>(i) / c.vocab();
    if (target_of(position) || got[i] == 0.0) continue;
    const bool last = (position + 1) % c.batch.length == 0;
    const bool untouched = got[i] == double{c.logits.values()[i]};
    lab::grading::stop(
        std::string(last ? "the last position of a row predicts nothing"
                         : "a position whose next token is padding predicts nothing") +
        (untouched ? ", but still holds its scores, which backward would take for gradients: fill "
                     "it with 0"
                   : ", but has a gradient: it should be exactly 0") +
        "\n" + c.name(i) + ": got " + std::to_string(got[i]) + ", expected 0");
  }
}

Case full_rows() {
  return {.logits = random_tensor({3, 6, 11}, 2.0, 21),
          .batch = random_tokens({6, 6, 6}, 6, 11, 22),
          .total_targets = 15};
}

Case padded_rows() {
  return {.logits = random_tensor({4, 7, 11}, 2.0, 23),
          .batch = random_tokens({7, 4, 1, 2}, 7, 11, 24),
          .total_targets = 10};
}

TEST(Task1b, LossOfFullRows) {
  const Case c = full_rows();
  expect_loss(run(c), c);
}

TEST(Task1b, GradientsOfFullRows) {
  const Case c = full_rows();
  const Parcel result = run(c);
  expect_zero_without_target(result, c);
  expect_gradients(result, c);
}

TEST(Task1b, PaddingIsNoTarget) {
  const Case c = padded_rows();
  const Parcel result = run(c);
  expect_loss(result, c);
  expect_zero_without_target(result, c);
  expect_gradients(result, c);
}

TEST(Task1b, DividesByAllTargetsOfTheStep) {
  Case c = padded_rows();
  c.total_targets = 37;
  const Parcel result = run(c);
  expect_loss(result, c);
  expect_gradients(result, c);
}

TEST(Task1b, NothingToPredictGivesZero) {
  for (const int64_t total : {5, 0}) {  // 0: no microbatch of the step has a target
    const Case c{.logits = random_tensor({3, 4, 5}, 2.0, 25),
                 .batch = random_tokens({1, 0, 1}, 4, 5, 26),
                 .total_targets = total};
    const Parcel result = run(c);
    const double loss = result.numbers("losses")[0];
    if (!(loss == 0.0))
      lab::grading::stop("a microbatch without any target must give the loss 0" +
                         std::string(total == 0 ? ", also when total_targets is 0: do not divide "
                                                  "0 by 0"
                                                : "") +
                         "\ngot " + std::to_string(loss));
    expect_zero_without_target(result, c);
  }
}

TEST(Task1b, RowsOfOneTokenPredictNothing) {
  const Case c{.logits = random_tensor({2, 1, 5}, 2.0, 27),
               .batch = random_tokens({1, 1}, 1, 5, 28),
               .total_targets = 3};
  const Parcel result = run(c);
  if (result.numbers("losses")[0] != 0.0)
    lab::grading::stop("rows of a single token have nothing to predict: the loss must be 0");
  expect_zero_without_target(result, c);
}

TEST(Task1b, ManyRowsOnAllCores) {
  const int64_t length = 64;
  const Case c{.logits = random_tensor({16, length, 8}, 2.0, 29),
               .batch = random_tokens(std::vector<int64_t>(16, length), length, 8, 30),
               .total_targets = 16 * (length - 1)};
  const Parcel result = run(c);
  expect_loss(result, c);
  expect_gradients(result, c);
}

/// Every cross-entropy is 64, and the divisor a power of two: the loss is exact in float too, in
/// whatever order it is summed, and a single one that got lost shows.
Case exact_losses() {
  const int64_t rows = 64;
  const int64_t length = 1024;
  const Case c{.logits = Tensor::empty({rows, length, 2}),
               .batch = random_tokens(std::vector<int64_t>(rows, length), length, 2, 31),
               .total_targets = rows * length};
  const TargetOf target_of = next_token(c);
  for (int64_t i = 0; i < c.positions(); ++i)
    for (int32_t v = 0; v < 2; ++v) c.logits.data()[2 * i + v] = target_of(i) == v ? 0.0F : 64.0F;
  return c;
}

TEST(Task1b, ThreadsAddUpWithoutLoss) {
  const Case c = exact_losses();
  const double right =
      64.0 * static_cast<double>(c.batch.target_count()) / static_cast<double>(c.total_targets);
  const Parcel result = run(c, "causal_lm_loss_by_threads");
  const std::vector<double> got = result.numbers("losses");
  for (const double loss : got)
    if (loss != right && std::ranges::any_of(got, [&](double other) { return other != loss; }))
      lab::grading::stop(
          "the loss differs from call to call with the same input: do several threads add to one "
          "variable, or use another one that all share? Keep one loss per position, add them up "
          "afterwards\ngot " +
          std::to_string(loss) + ", expected " + std::to_string(right));
  expect_loss(result, c);
}

}  // namespace
}  // namespace lab01
