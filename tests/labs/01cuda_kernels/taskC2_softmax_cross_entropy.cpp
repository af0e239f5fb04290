// Task C2: softmax, cross-entropy and its gradient in one kernel.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/labs/01cuda_kernels/judge.h"
#include "tests/labs/01cuda_kernels/machine.h"

namespace lab01cuda::task_c2 {
namespace {

constexpr float kNone = -1;  // target of a position that predicts nothing
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

struct Rows {
  Tensor logits;   // [rows, vocab]
  Tensor targets;  // [rows]
  float scale = 1;

  size_t count() const { return static_cast<size_t>(logits.size(0)); }
  size_t vocab() const { return static_cast<size_t>(logits.size(1)); }
  std::span<float> row(size_t n) const { return logits.values().subspan(n * vocab(), vocab()); }
  float& target(size_t n) const { return targets.values()[n]; }
};

/// Rows around 0, near +-10,000 and below, one kind with several largest scores, one without a
/// target. Targets walk over the vocabulary, first and last token included.
Rows draw_rows(int64_t count, int64_t vocab, uint64_t number, float scale = 1) {
  const uint64_t seed = 1000 * lab::grading::scenario_seed() + number;
  Rows rows{draw_tensor({count, vocab}, 4.0, seed), Tensor::zeros({count}), scale};
  constexpr float kCentres[] = {0, 10'000, 0, -10'000, 0, -12'345};
  for (size_t n = 0; n < rows.count(); ++n) {
    const size_t kind = (n + number) % 6;
    rows.target(n) = static_cast<float>(n % 4 == 1 ? rows.vocab() - 1 : n * 77 % rows.vocab());
    if (kind == 4) rows.target(n) = kNone;
    for (float& z : rows.row(n)) z = kCentres[kind] + (kind == 2 ? std::min(z, 3.2F) : z);
  }
  return rows;
}

/// What there is to know of a score: as its thread sees the row.
struct Place {
  double z;
  double largest;
  double sum;  // of exp(z - largest)
  double own_largest;
  double onehot;
  double by_thread;  // 1 if the number of the thread is the target
  double by_rest;    // 1 in all columns of the target's thread
  double scale;

  double p() const { return std::exp(z - largest) / sum; }
  double loss() const { return std::log(sum) - (z - largest); }
  double rounded() const { return static_cast<float>(largest + std::log(sum)); }
};
using Formula = double (*)(const Place&);

/// Per row the loss, or per score the gradient.
Numbers results_of(const Rows& rows, bool gradient, Formula formula, const RowPart& part) {
  Numbers results(rows.count() * (gradient ? rows.vocab() : 1), 0.0);
  for (size_t n = 0; n < rows.count(); ++n) {
    if (rows.target(n) == kNone) continue;
    const std::span<const float> row = rows.row(n);
    const double largest = *std::ranges::max_element(row);
    Numbers terms;
    Numbers own(kThreads, -1e300);
    for (size_t v = 0; v < row.size(); ++v) {
      terms.push_back(std::exp(row[v] - largest));
      own[v % kThreads] = std::max(own[v % kThreads], double{row[v]});
    }
    const Numbers sums = sums_of(part, terms);
    const auto target = static_cast<size_t>(rows.target(n));
    for (size_t v = gradient ? 0 : target; v < (gradient ? row.size() : target + 1); ++v)
      results[gradient ? n * row.size() + v : n] =
          formula({.z = row[v],
                   .largest = largest,
                   .sum = sums[v % kThreads],
                   .own_largest = own[v % kThreads],
                   .onehot = v == target ? 1.0 : 0.0,
                   .by_thread = v % kThreads == target ? 1.0 : 0.0,
                   .by_rest = v % kThreads == target % kThreads ? 1.0 : 0.0,
                   .scale = rows.scale});
  }
  return results;
}

double right_loss(const Place& a) { return a.loss(); }
double right_gradient(const Place& a) { return a.scale * (a.p() - a.onehot); }

using WrongFormula = std::pair<const char*, Formula>;  // what is told, and the numbers it gives

constexpr WrongFormula kWrongLosses[] = {
    {"a thread takes its scores relative to the largest one that it has seen itself: each thread "
     "has seen only a part of its row; take them relative to the largest of the row",
     [](const Place& a) { return std::log(a.sum) - (a.z - a.own_largest); }},
    {"the losses are multiplied by scale; scale belongs to the gradient only",
     [](const Place& a) { return a.scale * a.loss(); }},
    {"the losses: the sign is wrong; a loss is minus the logarithm of a probability",
     [](const Place& a) { return -a.loss(); }},
    {"the losses: these are probabilities; a loss is minus the logarithm of one",
     [](const Place& a) { return a.p(); }},
    {"the losses: this is log sum exp alone; the target's score must be subtracted",
     [](const Place& a) { return a.loss() + a.z; }},
    {"the losses: added to what was there; `losses` holds no numbers yet, so assign to it",
     [](const Place& a) { return a.loss() + double{kUntouched}; }},
    {"the losses: the target's score was read after it had been overwritten",
     [](const Place& a) { return a.loss() + a.z - right_gradient(a); }},
    {"the losses: large ones are cut off, where the probability is too small for a float; "
     "compute log(sum) - (score - largest), not the logarithm of a probability",
     [](const Place& a) { return std::min(a.loss(), 87.3365); }},
    {"the losses have lost their digits to rounding: near 10,000 floats are 0.001 apart; subtract "
     "the largest score from the target's score before anything is added to it (section 5.2)",
     [](const Place& a) { return a.rounded() - a.z; }}};
constexpr WrongFormula kWrongGradients[] = {
    {"the gradient: the logits were left as they came in; on return they hold scale * (softmax - "
     "onehot)",
     [](const Place& a) { return a.z; }},
    {"the gradient: this is the softmax; subtract 1 from the target's probability (onehot)",
     [](const Place& a) { return a.scale * a.p(); }},
    {"the gradient: the sign is wrong; it is softmax minus onehot",
     [](const Place& a) { return -right_gradient(a); }},
    {"the gradient is not multiplied by scale", [](const Place& a) { return a.p() - a.onehot; }},
    {"the gradient: the softmax is multiplied by scale, the 1 that is subtracted is not",
     [](const Place& a) { return a.scale * a.p() - a.onehot; }},
    {"the gradient: the target is compared with a thread's number: compare it with the column's",
     [](const Place& a) { return a.scale * (a.p() - a.by_thread); }},
    {"the gradient: 1 is subtracted in all columns of a thread: compare the column's number",
     [](const Place& a) { return a.scale * (a.p() - a.by_rest); }},
    {"the gradient: the onehot is subtracted before the exponentials are divided by their sum",
     [](const Place& a) { return a.scale * (a.p() - a.onehot / a.sum); }},
    {"the gradient: these are the exponentials, not yet divided by their sum",
     [](const Place& a) { return a.scale * (a.p() * a.sum - a.onehot); }},
    {"the gradient has lost its digits to rounding: near 10,000 floats are 0.001 apart; subtract "
     "the largest score from a score before anything else is",
     [](const Place& a) { return a.scale * (std::exp(a.z - a.rounded()) - a.onehot); }}};

Expected expected(const Rows& rows, bool gradient) {
  const std::string what = gradient ? "the gradient" : "the losses";
  const Formula right = gradient ? right_gradient : right_loss;
  const Formula tolerance =
      gradient ? [](const Place& a) { return a.scale * (1e-5 * (a.p() + a.onehot) + 1e-7); }
               : [](const Place& a) { return 1e-5 * std::max(a.loss(), 1.0); };
  Numbers allowed = results_of(rows, gradient, tolerance, {});
  if (rows.vocab() > 10'000)  // sums of so many floats
    for (double& error : allowed) error *= 10;
  const auto mistakes = [&rows, gradient, right] {
    std::vector<Mistake> all;
    for (const RowPart& part : parts_of_row(rows.vocab()))
      all.push_back({results_of(rows, gradient, right, part), part.mistake});
    const auto add = [&](const WrongFormula& wrong) {
      all.push_back({results_of(rows, gradient, wrong.second, {}), wrong.first});
    };
    if (gradient) std::ranges::for_each(kWrongGradients, add);
    if (!gradient) std::ranges::for_each(kWrongLosses, add);
    const auto add_targets = [&](const char* mistake, float (*becomes)(float target)) {
      const Rows others{rows.logits, rows.targets.clone(), rows.scale};
      for (float& target : others.targets.values())
        if (target != kNone) target = becomes(target);
      all.push_back({results_of(others, gradient, right, {}), mistake});
    };
    add_targets(
        "target 0 is taken for -1, a row that predicts nothing: 0 is a token like any other",
        [](float target) { return target == 0 ? kNone : target; });
    add_targets(
        "the target was cut to 16 bits: it is an int32_t, because a vocabulary may have more than "
        "65,536 tokens",
        [](float target) { return std::fmod(target, 65'536.0F); });
    return all;
  };
  return {.what = what,
          .values = results_of(rows, gradient, right, {}),
          .tolerance = allowed,
          .name = gradient ? place_in_row(rows.vocab(), "token") : place_in_row(1),
          .mistakes = mistakes,
          .if_not_finite =
              what +
              ": not finite: exp overflows for large scores, and -infinity minus -infinity is not "
              "a number; take each score relative to the row's largest, and let a thread without "
              "scores begin with the smallest finite one, -FLT_MAX" +
              (gradient ? "" : ". Or is it the logarithm of a probability that is rounded to 0?")};
}

/// Of rows without a target. If only some blocks run, those that nobody wrote are left out.
void expect_nothing(const Rows& rows, const Numbers& losses, const Numbers& gradient,
                    const Options& options) {
  for (size_t i = 0; i < gradient.size(); ++i) {
    const size_t n = i / rows.vocab();
    if (rows.target(n) != kNone || (gradient[i] == 0 && losses[n] == 0)) continue;
    if (options.block_step > 1 && losses[n] == double{kUntouched} &&
        gradient[i] == double{rows.logits.values()[i]})
      continue;
    const char* problem =
        losses[n] == double{kUntouched} ? "has no loss: write 0" : "has a loss other than 0";
    if (gradient[i] != 0) problem = "has a gradient: fill it with 0";
    if (gradient[i] != 0 && gradient[i] == double{rows.logits.values()[i]})
      problem =
          "still holds its scores, which the backward pass would take for gradients: fill it "
          "with 0";
    stop(
        fmt::format("a row that predicts nothing (target -1) {}\nrow {}: loss {:.7g}, gradient of "
                    "token {} {:.7g}",
                    problem, n, losses[n], i % rows.vocab(), gradient[i]));
  }
}

void judge(const std::vector<Rows>& all, Options options = {}) {
  const bool has_lesson = !options.lesson.empty();
  if (!has_lesson)
    options.lesson =
        "is the sum of exp(score - largest) that of the whole row? When two sets are merged, both "
        "sums are taken relative to the larger one of the two largest scores (section 5.1)";
  const char* loss_alone =
      "the gradient is right, so the largest score and the sum are; the losses are not: "
      "log(sum) - (score - largest), with the target's score";
  Options of_gradient = options;
  of_gradient.lesson =
      "the losses are right, the gradient is not: every thread needs the largest score and the sum "
      "of the whole row; the 1 is subtracted in the target's column alone";
  std::vector<KernelCall> calls;
  for (const Rows& rows : all) {
    const auto judge_rows = [&](const Parcel& result) {
      const Numbers losses = to_doubles(result.tensor("losses"));
      const Numbers gradient = to_doubles(result.tensor("logits"));
      const auto was_written = [](double loss) { return loss != double{kUntouched}; };
      if (rows.vocab() == 0 && std::ranges::any_of(losses, was_written))
        stop("without a score there is nothing to write, but the loss of a row was written");
      if (rows.logits.numel() == 0) return;
      expect_nothing(rows, losses, gradient, options);
      Options of_loss = options;
      const Expected right_gradients = expected(rows, true);
      if (!has_lesson && lab::grading::difference(gradient, right_gradients).empty())
        of_loss.lesson = loss_alone;
      expect_numbers(losses, expected(rows, false), of_loss);
      expect_numbers(gradient, right_gradients, of_gradient, to_doubles(rows.logits));
      expect_shared_row(result, rows.vocab());
      if (rows.vocab() < kLongRow) return;
      // In addition, each thread may read a few numbers of its row.
      expect_at_most(result, "read",
                     static_cast<double>(rows.count() * (2 * rows.vocab() + 8 * kThreads)),
                     "rows are read more than twice: the largest score and the sum come out of one "
                     "pass over the row, by merging pairs (section 5.1), the gradient out of a "
                     "second one\nnumbers that were read:");
    };
    calls.push_back({fmt::format("logits [{}, {}]", rows.count(), rows.vocab()),
                     rows.logits.numel() > 0, Parcel(), judge_rows});
    calls.back().input.set("logits", rows.logits);
    calls.back().input.set("targets", rows.targets);
    calls.back().input.set("scale", rows.scale);
  }
  judge_kernels("softmax_cross_entropy", calls, options);
}

TEST(TaskC2, TheLargestScoreMayComeLast) {
  // Rows once falling, once rising: then every score is the largest so far.
  const Rows falling{draw_tensor({3, 1000}, 4.0, 7), Tensor::from({999, 0, 500}, {3})};
  for (size_t n = 0; n < 3; ++n) std::ranges::sort(falling.row(n), std::greater<>());
  const Rows rising{falling.logits.clone(), falling.targets};
  for (size_t n = 0; n < 3; ++n) std::ranges::sort(rising.row(n));
  judge({falling});
  judge({rising},
        {.lesson = "rows whose scores fall are right, rows whose scores rise are wrong: when a "
                   "larger score comes, the sum so far is relative to the old largest; multiply it "
                   "by exp(old - new)"});
}

TEST(TaskC2, EqualScores) {
  std::vector<Rows> all;
  for (int64_t vocab : {1000, 129, 40, 2}) {
    all.push_back(draw_rows(3, vocab, 0));
    all.back().logits.fill(-3.5F);
  }
  judge(all, {.lesson = "rows of equal scores are wrong: are sets whose largest scores are equal "
                        "merged like all others? Both sums count"});
}

TEST(TaskC2, NothingToPredict) {
  std::vector<Rows> all;
  for (int64_t vocab : {203, 200, 1, 5, 4096})
    for (int64_t count : {1, 5}) {
      all.push_back(draw_rows(count, vocab, 11, 0.5F));
      for (size_t n = 0; n < all.back().count(); n += 2) all.back().target(n) = kNone;
      // Scores that nobody looks at may be anything: 0 times infinity is not 0.
      if (vocab == 5) std::ranges::fill(all.back().row(0), kInfinity);
      if (vocab == 200) all.back().row(0)[7] = kNan;
    }
  judge(all);
}

TEST(TaskC2, RowsOfAnyLength) {
  // The first is neither short nor a multiple of anything: most mistakes show, and differ.
  std::vector<Rows> all;
  for (int64_t vocab : {1000, 1,   2,   31,  32,   33,   63,   64,   127, 128, 129,    160, 203,
                        257,  288, 511, 512, 1024, 4096, 9001, 2048, 385, 128, 70'001, 33,  1})
    all.push_back(draw_rows(vocab > 2000 ? 2 : 6, vocab, 10 * all.size(),
                            all.size() % 2 == 0 ? 1.0F : 0.125F));
  judge(all);
}

TEST(TaskC2, AnyNumberOfRows) {
  const Rows without_scores{Tensor::zeros({3, 0}), Tensor::from({kNone, kNone, kNone}, {3})};
  judge({draw_rows(1, 40, 0), draw_rows(150, 40, 10), draw_rows(0, 40, 20), without_scores,
         draw_rows(3, 40, 30), draw_rows(1100, 2, 40)});
  const Rows many = draw_rows(300'003, 1, 100);
  many.targets.fill(0);
  judge({many}, {.block_step = 983});
  many.targets.fill(kNone);
  judge({many}, {.block_step = 983});
}

TEST(TaskC2, FiniteAndAccurateForLargeScores) {
  const Rows few{Tensor::from({1e4F,  9'999, 0,       -1e4F,   1e4F,   1e4F,     1e4F,     1e4F,  //
                               -1e4F, -1e4F, -10'002, -10'001, 100,    99,       98,       97,    //
                               0,     0,     0,       -200,    -2e38F, -1.9e38F, -1.9e38F, -3e38F,
                               1e38F, 1e38F, 1.6e38F, -1.6e38F},
                              {7, 4}),
                 Tensor::from({1, 0, 2, 3, 3, 1, 3}, {7})};
  const Rows wide{draw_tensor({3, 300}, 10'000.0, 7), Tensor::from({0, 150, 299}, {3})};
  const Rows steps = draw_rows(3, 1000, 20);  // each thread finds many scores far above its first
  for (size_t n = 0; n < 3; ++n) {
    std::ranges::fill(steps.row(n), 87.5F - 29 * static_cast<float>(n));
    std::fill_n(steps.row(n).begin(), kThreads, 0.0F);
  }
  const Rows lowest = draw_rows(2, 5, 0);  // threads without a score have no smaller one, either
  lowest.logits.fill(-std::numeric_limits<float>::max());
  judge({few, wide, draw_rows(6, 300, 0), steps, lowest});
}

TEST(TaskC2, ManySmallScoresAddUp) {
  const Rows rows = draw_rows(4, 10'000, 0);
  for (size_t n = 0; n < 4; ++n) {  // each of them is small even for a float
    std::ranges::fill(rows.row(n), -12.5F - 2.52F * static_cast<float>(n));
    rows.row(n)[static_cast<size_t>(rows.target(n))] = 0;
  }
  judge({rows},
        {.lesson = "scores far below the largest are left out, or rounded off in a sum that "
                   "is much larger: thousands of them together are more than 1e-5 of it"});
}

TEST(TaskC2, ScaleIsAFactorOfTheGradientOnly) {
  judge({draw_rows(6, 100, 0, 0.125F), draw_rows(6, 100, 0, 3), draw_rows(6, 100, 0, 0.0013F),
         draw_rows(6, 100, 0, 0), draw_rows(6, 100, 0, 1e38F), draw_rows(6, 100, 0, 1e-30F)});
}

TEST(TaskC2, NothingElseIsTouched) {
  for (const int fence : kFences)
    judge({draw_rows(6, 203, 0), draw_rows(6, 1, 0), draw_rows(6, 1000, 0)}, {.fence = fence});
}

}  // namespace
}  // namespace lab01cuda::task_c2
