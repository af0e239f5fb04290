// Task 1a: the loss of one prediction and its gradient, for rows of every size and kind.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <numeric>

#include "tests/grading/training_case.h"
#include "tests/grading/verdict.h"
#include "tests/labs/01_single_gpu/softmax.h"

namespace lab01::task1a {
namespace {

using lab::Tensor;
using lab::grading::draw_tensor;
using lab::grading::Expected;
using lab::grading::Mistake;
using lab::grading::Numbers;
using lab::grading::Parcel;
using lab::grading::to_doubles;

// As the contract says.
constexpr double kTolerance = 1e-5;
constexpr double kGradientFloor = 1e-7;

constexpr const char* kOverflow =
    "not finite for scores around 10,000: exp overflows; subtract the row's largest score from all "
    "scores first (section 2.3)";

constexpr const char* kLateLargest =
    "not finite when the largest score is not among the first: look for it in the whole row";

/// Rows of scores with a target and a scale each.
struct Rows {
  std::string name;
  Tensor logits;  // [N, V]
  Numbers targets;
  Numbers scales;
  std::string if_not_finite = kOverflow;

  size_t count() const { return targets.size(); }
  size_t vocab() const { return static_cast<size_t>(logits.size(-1)); }
  size_t target(size_t n) const { return static_cast<size_t>(targets[n]); }
  std::span<float> row(size_t n) const { return logits.values().subspan(n * vocab(), vocab()); }

  /// One number per row.
  Numbers per_row(const std::function<double(size_t n, const Softmax&)>& value) const {
    Numbers values;
    for (size_t n = 0; n < count(); ++n) values.push_back(value(n, Softmax(row(n))));
    return values;
  }
};

/// The targets walk over the vocabulary, first and last token included.
Rows rows_of(const std::string& name, const Tensor& logits, const Numbers& scales = {}) {
  Rows rows{.name = name, .logits = logits, .targets = {}, .scales = {}};
  const int64_t vocab = logits.size(-1);
  for (int64_t n = 0; n < logits.size(0); ++n) {
    rows.targets.push_back(static_cast<double>(n == 1 ? vocab - 1 : n * 7 % vocab));
    rows.scales.push_back(scales.empty() ? 1 : scales[static_cast<size_t>(n) % scales.size()]);
  }
  return rows;
}

Rows random_rows(int64_t count, int64_t vocab, double spread, uint64_t seed,
                 const Numbers& scales = {}) {
  Rows rows = rows_of(
      fmt::format("{} rows of {} scores up to {:g}", count, vocab, spread),
      draw_tensor({count, vocab}, spread, 1000 * lab::grading::scenario_seed() + seed), scales);
  rows.if_not_finite =
      "not finite, although no exponential overflows: is a variable used that was never set, is "
      "the logarithm of 0 taken, or is something divided by scale, which may be 0?";
  return rows;
}

Rows given_rows(const std::string& name, std::initializer_list<float> values, int64_t vocab,
                const Numbers& targets, const std::string& if_not_finite = kOverflow) {
  Rows rows = rows_of(name, Tensor::from(values, {static_cast<int64_t>(targets.size()), vocab}));
  rows.targets = targets;
  rows.if_not_finite = if_not_finite;
  return rows;
}

/// The exponentials, added up in float, in so many sums side by side.
double float_sum(const Softmax& s, size_t lanes) {
  std::vector<float> sums(lanes, 0.0F);
  for (size_t v = 0; v < s.scores.size(); ++v)
    sums[v % lanes] += std::exp(s.scores[v] - static_cast<float>(s.largest));
  return std::accumulate(sums.begin(), sums.end(), 0.0F);
}

std::vector<Mistake> loss_mistakes(const Rows& rows, double largest_got) {
  std::vector<Mistake> mistakes;
  const auto add = [&](const std::string& message, const auto& value) {
    mistakes.push_back({rows.per_row([&](size_t n, const Softmax& s) {
                          return value(s, rows.target(n), s.loss(rows.target(n)));
                        }),
                        "the loss" + message});
  };
  for (const size_t lanes : {1, 2, 4, 8, 16, 32, 64})
    add(": the sum of the exponentials has lost the small ones: next to a large one, each of them "
        "is rounded off in float; add them up in double",
        [=](const Softmax& s, size_t y, double) {
          return std::log(float_sum(s, lanes)) - (s.scores[y] - s.largest);
        });
  add(": this is the probability of the target; it should be minus its logarithm",
      [](const Softmax& s, size_t y, double) { return s.probabilities[y]; });
  add(": the sign is wrong; it is minus the logarithm of a probability, never negative",
      [](const Softmax&, size_t, double loss) { return -loss; });
  add(" is in bits; use the natural logarithm",
      [](const Softmax&, size_t, double loss) { return loss / std::log(2.0); });
  add(": the logarithm of the sum is in bits; use the natural logarithm",
      [](const Softmax& s, size_t y, double) {
        return std::log2(s.sum) - (s.scores[y] - s.largest);
      });
  for (const bool shifted : {false, true})
    add(": the target's score was read when its exponential had taken its place: read it before",
        [=](const Softmax& s, size_t y, double) {
          const double written = std::exp(s.scores[y] - s.largest);
          return std::log(s.sum) - (shifted ? written - s.largest : written);
        });
  add(": the sum of the exponentials does not begin with 0, but with 1",
      [](const Softmax& s, size_t y, double) {
        return std::log(s.sum + 1) - (s.scores[y] - s.largest);
      });
  add(": the largest score is subtracted in the sum, but not from the target's score",
      [](const Softmax& s, size_t, double loss) { return loss - s.largest; });
  add(": the largest score is subtracted from the target's score, but not in the sum",
      [](const Softmax& s, size_t, double loss) { return loss + s.largest; });
  add(": this is log sum exp alone; the target's score must be subtracted",
      [](const Softmax& s, size_t, double) { return s.largest + std::log(s.sum); });
  add(" has lost its digits to rounding: near 10,000 floats are 0.001 apart; subtract the largest "
      "score from the target's score before anything is added to it (section 2.3)",
      [](const Softmax& s, size_t y, double) {
        return static_cast<float>(s.largest + std::log(s.sum)) - s.scores[y];
      });
  add(" of large scores has lost its digits to rounding, even in double: subtract the largest "
      "score from the target's score before anything is added to it (section 2.3)",
      [](const Softmax& s, size_t y, double) {
        return (s.largest + std::log(s.sum)) - s.scores[y];
      });
  for (const double limit : {10, 20, 30, 50, 80, 87, 88, 100})
    add(fmt::format(": it stops growing when the target's score is {:g} below the largest: a "
                    "loss has no upper limit",
                    limit),
        [=](const Softmax& s, size_t y, double) {
          return std::log(s.sum) + std::min(s.largest - s.scores[y], limit);
        });
  add(": the target is cut to 16 bits: it is an int32_t, as V may be above 65,536",
      [](const Softmax& s, size_t y, double) { return s.loss(y % 65'536); });
  for (const double least : {1e-4, 1e-3, 1e-2})
    add(": 0 where the target is nearly certain: it becomes small there, but never 0",
        [=](const Softmax&, size_t, double loss) { return loss < least ? 0 : loss; });
  add(": scores that are equal to the largest count once: each of them belongs in the sum",
      [](const Softmax& s, size_t y, double) {
        const auto ties = static_cast<double>(std::ranges::count(s.scores, s.largest));
        return std::log(s.sum - (ties - 1)) - (s.scores[y] - s.largest);
      });
  add(": the exponentials are added up as whole numbers: a sum that begins with the int 0 is an "
      "int",
      [](const Softmax& s, size_t y, double) {
        const auto ones = static_cast<double>(std::ranges::count(s.scores, s.largest));
        return std::log(ones) - (s.scores[y] - s.largest);
      });
  if (std::isfinite(largest_got) && largest_got > 0)
    add(fmt::format(" of an improbable target is cut off at {:.4g} nats: it has no limit; compute "
                    "log(sum) and the target's score separately (section 2.3)",
                    largest_got),
        [=](const Softmax&, size_t, double loss) { return std::min(loss, largest_got); });
  Numbers scaled;
  for (size_t n = 0; n < rows.count(); ++n)
    scaled.push_back(rows.scales[n] * Softmax(rows.row(n)).loss(rows.target(n)));
  mistakes.push_back(
      {scaled, "the loss is multiplied by scale; scale belongs to the gradient only"});
  Numbers unscaled = rows.per_row(
      [&](size_t n, const Softmax& s) { return rows.scales[n] == 0 ? 0 : s.loss(rows.target(n)); });
  mistakes.push_back(
      {unscaled, "the loss is 0 where scale is 0; scale belongs to the gradient only"});
  return mistakes;
}

void expect_losses(const Rows& rows, const Numbers& got) {
  Expected expected{
      .what = "the loss",
      .values = rows.per_row([&](size_t n, const Softmax& s) { return s.loss(rows.target(n)); }),
      .tolerance = {},
      .name = [](size_t n) { return fmt::format("row {}", n); },
      .mistakes = [&] { return loss_mistakes(rows, *std::max_element(got.begin(), got.end())); },
      .if_not_finite = rows.if_not_finite};
  expected.tolerance = lab::grading::relative_tolerance(expected.values, kTolerance, 1.0);
  lab::grading::expect(got, expected);
}

/// An entry of the gradient: p the score's probability, y 1 for the target and else 0, c the scale.
using OfScore = std::function<double(double p, double y, double c)>;

Numbers per_score(const Rows& rows, size_t n, const Softmax& softmax, const OfScore& value) {
  Numbers values;
  for (size_t v = 0; v < rows.vocab(); ++v)
    values.push_back(
        value(softmax.probabilities[v], v == rows.target(n) ? 1.0 : 0.0, rows.scales[n]));
  return values;
}

std::vector<Mistake> gradient_mistakes(const Rows& rows, size_t n, const Softmax& softmax) {
  const double sum = softmax.sum;
  std::vector<std::pair<std::string, OfScore>> formulas = {
      {": this is the softmax; subtract 1 from the target's probability (onehot)",
       [](double p, double, double c) { return c * p; }},
      {": the sign is wrong; it is softmax minus onehot, not onehot minus softmax",
       [](double p, double y, double c) { return c * (y - p); }},
      {" is not multiplied by scale", [](double p, double y, double) { return p - y; }},
      {": the softmax is multiplied by scale, but what is subtracted from the target's entry is "
       "not",
       [](double p, double y, double c) { return c * p - y; }},
      {": what is subtracted from the target's entry is multiplied by scale, but the softmax is "
       "not",
       [](double p, double y, double c) { return p - c * y; }},
      {" is multiplied by scale twice",
       [](double p, double y, double c) { return c * c * (p - y); }},
      {": the target's entry holds only what is subtracted from it: its softmax term is missing",
       [](double p, double y, double c) { return y == 1 ? -c : c * p; }},
      {": the onehot is subtracted before the exponentials are divided by their sum",
       [=](double p, double y, double c) { return c * (p - y / sum); }},
      {": these are the exponentials, not yet divided by their sum",
       [=](double p, double y, double c) { return c * (p * sum - y); }},
      {": these are the exponentials: write the gradient over them, even where scale is 0",
       [=](double p, double, double) { return p * sum; }},
      {": 0 where the target is nearly certain: it becomes small there, but never 0",
       [](double, double, double) { return 0; }}};
  for (const double least : {1e-3, 1e-4, 1e-5, 1e-6})
    formulas.emplace_back(
        ": small probabilities are set to 0: together they weigh as much as the target",
        [=](double p, double y, double c) { return c * ((p < least ? 0 : p) - y); });
  for (const size_t lanes : {1, 4, 8, 16}) {
    const double of_floats = float_sum(softmax, lanes);
    formulas.emplace_back(
        ": the sum of the exponentials has lost the small ones: divide by the sum in double",
        [=](double p, double y, double c) { return c * (p * sum / of_floats - y); });
  }
  std::vector<Mistake> mistakes = {
      {Numbers(rows.row(n).begin(), rows.row(n).end()),
       "the gradient: the logits were left as they came in; on return they must hold "
       "scale * (softmax - onehot), even where that is 0"}};
  for (const auto& [message, value] : formulas)
    mistakes.push_back({per_score(rows, n, softmax, value), "the gradient" + message});
  double largest_so_far = softmax.scores[0];
  Numbers too_large = per_score(rows, n, softmax, [](double p, double, double c) { return c * p; });
  for (size_t v = 0; v < too_large.size(); ++v) {
    largest_so_far = std::max<double>(largest_so_far, softmax.scores[v]);
    too_large[v] *= std::exp(softmax.largest - largest_so_far);
  }
  too_large[rows.target(n)] -= rows.scales[n];
  mistakes.push_back({too_large,
                      "the gradient: exponentials that were computed before the largest score came "
                      "are still relative to a smaller one"});
  return mistakes;
}

/// Row by row: what is wrong in one of them need not be in the others.
void expect_gradients(const Rows& rows, const Numbers& got) {
  for (size_t n = 0; n < rows.count(); ++n) {
    const Softmax softmax(rows.row(n));
    const auto begin = got.begin() + static_cast<std::ptrdiff_t>(n * rows.vocab());
    lab::grading::expect(
        Numbers(begin, begin + static_cast<std::ptrdiff_t>(rows.vocab())),
        {.what = "the gradient",
         .values =
             per_score(rows, n, softmax, [](double p, double y, double c) { return c * (p - y); }),
         .tolerance = per_score(rows, n, softmax,
                                [](double p, double y, double c) {
                                  return std::abs(c) * (kTolerance * (p + y) + kGradientFloor);
                                }),
         .name = [n](size_t v) { return fmt::format("row {}, token {}", n, v); },
         .mistakes = [&] { return gradient_mistakes(rows, n, softmax); },
         .if_not_finite = rows.if_not_finite});
  }
}

Parcel input_of(const Rows& rows) {
  Parcel input;
  input.set("logits", rows.logits);
  input.set("targets", rows.targets);
  input.set("scales", rows.scales);
  return input;
}

void expect_cross_entropies(const std::vector<Rows>& cases) {
  std::vector<lab::grading::Call> calls;
  for (const Rows& rows : cases)
    calls.push_back({.scenario = "cross_entropy", .inputs = {input_of(rows)}, .name = rows.name});
  judge_calls(calls, {.network = lab::grading::Network::kNone},
              [&](size_t k, const std::vector<Parcel>& ranks) {
                if (ranks[0].number("fence_broken") != 0)
                  lab::grading::stop("memory outside of the span of logits was overwritten");
                expect_losses(cases[k], ranks[0].numbers("losses"));
                expect_gradients(cases[k], to_doubles(ranks[0].tensor("gradients")));
              });
}

/// Row n has its largest score, which is the target's, at place n.
Rows largest_everywhere(int64_t vocab) {
  const Tensor logits = draw_tensor({vocab, vocab}, 2.0, 16);
  Rows rows = rows_of("the largest score in every place", logits);
  for (size_t n = 0; n < rows.count(); ++n) {
    rows.row(n)[n] = 300.0F;
    rows.targets[n] = static_cast<double>(n);
  }
  rows.if_not_finite = kLateLargest;
  return rows;
}

/// All scores equal but one, `lead` above them: first, in the middle, last. It is the target.
Rows one_leads(int64_t vocab, float lead) {
  const Tensor logits = Tensor::zeros({3, vocab});
  Rows rows = rows_of(fmt::format("one of {} scores is {} above the others", vocab, lead), logits);
  const int64_t middle = vocab / 2;
  rows.targets = {0, static_cast<double>(middle), static_cast<double>(vocab - 1)};
  for (size_t n = 0; n < 3; ++n) rows.row(n)[rows.target(n)] = lead;
  return rows;
}

TEST(Task1a, ExampleOfSectionFour) {
  const float ln2 = std::log(2.0F);
  const float ln4 = std::log(4.0F);
  expect_cross_entropies({given_rows("the example", {ln4, ln2, 0, 0, ln4, ln2, 0, 0}, 4, {1, 3})});
}

TEST(Task1a, RowsOfEverySize) {
  const Numbers scales = {0.5, 3, 1.0 / 3, 1e-3, 1, 0, 2.5e-10, -1};
  expect_cross_entropies(
      {random_rows(16, 7, 4, 1), random_rows(16, 1000, 4, 2), random_rows(16, 7, 4, 3),
       random_rows(8, 9, 2, 4, scales), random_rows(8, 130, 2, 5, scales),
       random_rows(4, 13, 8, 6, scales), random_rows(2, 1, 4, 7), random_rows(9, 2, 4, 8),
       random_rows(5, 4097, 6, 9), random_rows(8, 17, 1e-30, 10, scales),
       given_rows("the largest score first", {300, 0, 1}, 3, {0}), largest_everywhere(13),
       random_rows(3, 3, 4, 11), random_rows(2, 32'000, 0.3, 12), random_rows(3, 151'937, 2, 17)});
}

TEST(Task1a, FiniteForEveryScore) {
  constexpr float kBig = 10'000;
  const std::string start =
      "not finite where all scores are far below 0: does the search for the largest score start at "
      "0, or at FLT_MIN, which is the smallest positive number? Start with the first score";
  const std::string improbable =
      "the loss is not finite where the target is improbable: its probability is rounded to 0; "
      "compute log(sum) and the target's score separately, not the log of a probability (section "
      "2.3)";
  expect_cross_entropies(
      {given_rows("scores around 10,000",
                  {kBig, kBig - 1, 0, -kBig, kBig, kBig, kBig, kBig, 100, 99, 98, 97}, 4,
                  {1, 0, 3}),
       given_rows("all scores far below 0",
                  {-kBig, -kBig, -kBig - 2, -200, -201, -203, -1e6F, -1e6F, -1e6F - 1}, 3,
                  {2, 0, 1}, start),
       given_rows("improbable targets", {70, -70, 3, kBig, -kBig, 0, 0, -100, -1, 1e30F, 0, -1e30F},
                  3, {1, 1, 1, 2}, improbable),
       given_rows(
           "scores that differ by more than the largest float",
           {3e38F, -3e38F, 0, -3e38F, 3e38F, 3e38F}, 3, {1, 1},
           "not finite where two scores differ by more than the largest float: subtract them "
           "in double"),
       given_rows(
           "equal scores of any size",
           {1e12F, 1e12F, 1e12F, 1e30F, 1e30F, 1e30F, -3e38F, -3e38F, -3e38F, 1e15F, 1e15F, -1e15F},
           3, {0, 1, 2, 1}),
       given_rows("nearly certain targets",
                  {8, 0, -1, 0, 12, 0, 3, 14, 2, -1, -2, 40, 0, 13, -1, 0, -1, 14.5F}, 3,
                  {0, 1, 1, 2, 1, 2}),
       random_rows(5, 21, 200, 14)});
}

TEST(Task1a, SeveralThreadsCallItAtOnce) {
  const Rows rows = random_rows(64, 4096, 4.0, 15);
  const double others =
      lab::grading::run_call({.scenario = "cross_entropy_by_threads",
                              .inputs = {input_of(rows)},
                              .name = "several threads call cross_entropy at once"},
                             {.network = lab::grading::Network::kNone})[0]
          .number("others");
  if (others > 0)
    lab::grading::stop(fmt::format(
        "cross_entropy gives other results when several threads call it at once, each with its own "
        "row: static and global variables are shared by all threads; use nothing but the span and "
        "local variables\nother results in {} of {} rows, expected 0",
        others, rows.count()));
}

TEST(Task1a, LongRows) {
  Rows far_above = one_leads(151'937, 200);
  far_above.if_not_finite = kLateLargest;
  expect_cross_entropies({far_above, one_leads(4096, 16.7F), one_leads(77, 16.7F),
                          one_leads(32'000, 17.5F), one_leads(151'937, 19), one_leads(151'937, 22),
                          random_rows(1, (1 << 20) + 3, 3, 13)});
}

}  // namespace
}  // namespace lab01::task1a
