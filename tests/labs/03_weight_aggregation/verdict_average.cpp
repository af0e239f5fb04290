// Verdict on tasks 1a, 1b and 2: shares, the average of weights in its place, and when it is due.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "common/grading/verdict.h"
#include "tests/labs/03_weight_aggregation/parameter_sets.h"

namespace lab03 {
namespace {

using lab::grading::Mistake;
using lab::grading::Parcel;
using lab::grading::stop;

/// Relative to the sum of the absolute terms: another order of summation, or another place of
/// scaling, moves the last bits of float32.
constexpr double kTolerance = 1e-6;

// Task 1a

void expect_shares(const Numbers& examples) {
  std::vector<Parcel> inputs(examples.size());
  double total = 0;
  for (size_t r = 0; r < examples.size(); ++r) {
    inputs[r].set("examples", examples[r]);
    total += examples[r];
  }
  const std::vector<Parcel> results = lab::grading::student_group("share_of", inputs);
  for (size_t r = 0; r < examples.size(); ++r) {
    std::vector<Mistake> mistakes = {
        {{1 / static_cast<double>(examples.size())},
         "all ranks get the same share, though they have unequally many examples: divide by the "
         "sum over the ranks, not by their number"},
        {{total}, "this is the sum of the examples, not this rank's part of it"},
        {{1}, "the share is 1 on every rank: were the examples added up over the ranks?"}};
    if (examples[r] > 0) mistakes.push_back({{total / examples[r]}, "the quotient is upside down"});
    lab::grading::expect(results[r].number("share"),
                         {.what = fmt::format("the share of rank {} of {}", r, examples.size()),
                          .values = {examples[r] / total},
                          .tolerance = {kTolerance},
                          .name = {},
                          .mistakes = mistakes,
                          .if_not_finite = "the share is not finite: was something divided by 0?"});
  }
}

TEST(Task1a, UnequalRanks) { expect_shares({100, 300, 400}); }
TEST(Task1a, EqualRanks) { expect_shares({255, 255, 255}); }
TEST(Task1a, ARankWithoutExamples) { expect_shares({3, 0}); }
TEST(Task1a, OneRankHasAll) { expect_shares({42}); }

// Task 1b

struct Ranks {
  explicit Ranks(const Numbers& all_shares)
      : shares(all_shares), inputs(parameter_sets(shares)), before(joined(inputs, "value")) {}

  size_t size() const { return shares.size(); }
  double share(size_t r) const { return shares[r]; }
  Numbers average() const {
    return combined(before, [this](size_t r) { return shares[r]; });
  }
  Numbers tolerance() const {
    std::vector<Numbers> sizes = before;
    for (Numbers& values : sizes)
      for (double& value : values) value = std::abs(value);
    return combined(sizes, [this](size_t r) { return kTolerance * shares[r]; });
  }
  double count() const { return static_cast<double>(size()); }

  Numbers shares;
  std::vector<Parcel> inputs;
  std::vector<Numbers> before;  // the weights of each rank
};

bool close(const Numbers& a, const Numbers& b) {
  for (size_t i = 0; i < a.size(); ++i)
    if (!(std::abs(a[i] - b[i]) <= kTolerance)) return false;
  return true;
}

Numbers times(Numbers values, double factor) {
  for (double& value : values) value *= factor;
  return values;
}

const char* const kNotWritten =
    "the average never reaches the model: the weights are as before. A Tensor is a handle; "
    "assigning to one lets it point elsewhere, and changes no number. Write the result where the "
    "weights lie: into parameter.value's own memory";

std::vector<Mistake> mistakes(const Ranks& ranks, size_t r) {
  const Numbers sum = combined(ranks.before, [](size_t) { return 1.0; });
  std::vector<Mistake> all = {
      {ranks.before[r], kNotWritten},
      {times(ranks.before[r], ranks.share(r)),
       "the weights are multiplied by this rank's share, and nothing is added: the result of the "
       "sum over the ranks never reaches the model"},
      {sum, "a sum of the ranks' weights, not their average: each rank contributes its share"},
      {times(sum, 1 / ranks.count()),
       "the shares are ignored: each rank's weights count the same, though their shares differ"},
      {times(sum, ranks.share(r)),
       "the sum over all ranks is multiplied by this rank's share: every rank must multiply its "
       "own weights by its own share before they are added up"},
      {combined(ranks.before, [&](size_t k) { return ranks.share(k) / ranks.count(); }),
       "averaged twice: the shares add up to 1 already; do not divide by the number of ranks as "
       "well"},
      {combined(ranks.before, [&](size_t k) { return ranks.share(k) * ranks.share(r); }),
       "averaged twice: multiplied by the share before and after the sum"},
      {combined(ranks.before, [&](size_t k) { return ranks.share(k) * ranks.share(k); }),
       "averaged twice: every rank's weights are multiplied by its share two times"},
  };
  if (ranks.size() > 1)
    all.push_back({combined(ranks.before, [r](size_t k) { return k == r ? 0.0 : 1.0; }),
                   "the weights of the other ranks only: this rank's own are missing"});
  return all;
}

/// Names of the tensors in which `got` is as `wanted` says; all others are not.
std::vector<std::string> tensors_like(const Numbers& got, const Numbers& wanted) {
  std::vector<std::string> names;
  size_t first = 0;
  for (const auto& [name, shape] : parameter_shapes()) {
    size_t last = first;
    while (last < got.size() && element_name(last).starts_with(name + ",")) ++last;
    const auto part = [&](const Numbers& all) {
      return Numbers(all.begin() + static_cast<int64_t>(first),
                     all.begin() + static_cast<int64_t>(last));
    };
    if (close(part(got), part(wanted))) names.push_back(name);
    first = last;
  }
  return names;
}

std::string listed(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

/// What concerns several ranks or single tensors, where whole tensors are right or untouched.
void explain(const Ranks& ranks, const std::vector<Numbers>& after) {
  const Numbers average = ranks.average();
  const auto right = [&](const Numbers& weights) { return close(weights, average); };
  if (ranks.size() > 1 && std::ranges::count_if(after, right) == 1 && right(after[0]))
    stop(
        "only rank 0 has the average: reduce leaves the result on one rank; all of them need it "
        "(all_reduce)");
  if (ranks.size() > 1 && std::ranges::all_of(after, [&](const Numbers& weights) {
        return close(weights, ranks.before[0]);
      }))
    stop("all ranks have rank 0's weights: a broadcast copies, it does not average");
  for (size_t r = 0; r < ranks.size(); ++r) {
    const std::vector<std::string> averaged = tensors_like(after[r], average);
    if (averaged.empty() || averaged.size() == parameter_shapes().size()) continue;
    for (const Numbers& left : {ranks.before[r], times(ranks.before[r], ranks.share(r))}) {
      const std::vector<std::string> missing = tensors_like(after[r], left);
      if (averaged.size() + missing.size() != parameter_shapes().size()) continue;
      stop(fmt::format("rank {}: {} of {} tensors are averaged; left out: {}", r, averaged.size(),
                       parameter_shapes().size(), listed(missing)));
    }
  }
}

void expect_untouched_gradients(const Ranks& ranks, const std::vector<Parcel>& results) {
  const std::vector<Numbers> before = joined(ranks.inputs, "gradient");
  const std::vector<Numbers> after = joined(results, "gradient");
  const std::vector<Numbers> weights = joined(results, "value");
  for (size_t r = 0; r < ranks.size(); ++r) {
    if (before[r] == after[r]) continue;
    if (weights[r] == ranks.before[r])
      stop("the gradients are averaged instead of the weights: this lab averages parameter.value");
    stop(fmt::format("rank {}: the gradients have changed; only the weights are averaged", r));
  }
}

void expect_equal_bits(const std::vector<Numbers>& after) {
  for (size_t r = 1; r < after.size(); ++r)
    for (size_t i = 0; i < after[r].size(); ++i)
      if (after[r][i] != after[0][i])
        stop(
            fmt::format("the replicas differ in their last bits: all ranks must take the result "
                        "of the same sum, not each its own\n{}: rank 0 has {:.9g}, rank {} {:.9g}",
                        element_name(i), after[0][i], r, after[r][i]));
}

void expect_average(const Numbers& shares) {
  const Ranks ranks(shares);
  const std::vector<Parcel> results = lab::grading::student_group("average_weights", ranks.inputs);
  const std::vector<Numbers> after = joined(results, "value");
  expect_untouched_gradients(ranks, results);
  explain(ranks, after);
  for (size_t r = 0; r < ranks.size(); ++r)
    lab::grading::expect(after[r], {.what = fmt::format("the weights of rank {}", r),
                                    .values = ranks.average(),
                                    .tolerance = ranks.tolerance(),
                                    .name = element_name,
                                    .mistakes = mistakes(ranks, r),
                                    .if_not_finite = ""});
  expect_equal_bits(after);
}

TEST(Task1b, FourNumbersByHand) {
  std::vector<Parcel> inputs(2);
  const std::vector<Numbers> weights = {{1, 2}, {5, 10}};
  for (size_t r = 0; r < 2; ++r) {
    inputs[r].set("share", r == 0 ? 0.25 : 0.75);
    inputs[r].set("parameters", 1);
    inputs[r].set_text("name.0", "w");
    inputs[r].set("value.0",
                  lab::Tensor::from(
                      {static_cast<float>(weights[r][0]), static_cast<float>(weights[r][1])}, {2}));
    inputs[r].set("gradient.0", lab::Tensor::zeros({2}));
  }
  const std::vector<Parcel> results = lab::grading::student_group("average_weights", inputs);
  for (size_t r = 0; r < 2; ++r)
    lab::grading::expect(
        lab::grading::to_doubles(results[r].tensor("value.0")),
        {.what = fmt::format("the table of section 4 on rank {}", r),
         .values = {4, 8},
         .tolerance = {8 * kTolerance},
         .name = {},
         .mistakes = {{weights[r], kNotWritten},
                      {{6, 12}, "a sum, not an average: each rank contributes its share"},
                      {{3, 6}, "the shares are ignored: 1/4 and 3/4, not half and half"}},
         .if_not_finite = ""});
}

TEST(Task1b, EqualShares) { expect_average({1.0 / 3, 1.0 / 3, 1.0 / 3}); }
TEST(Task1b, UnequalShares) { expect_average({0.5, 0.125, 0.375}); }
TEST(Task1b, ARankWithoutExamplesGetsTheAverage) { expect_average({0.75, 0.0, 0.25}); }
TEST(Task1b, TwoRanks) { expect_average({0.25, 0.75}); }
TEST(Task1b, OneRankKeepsItsWeights) { expect_average({1.0}); }

// Task 2

struct Question {
  double step;
  double every;
};

std::string schedule(const Numbers& due, const std::vector<Question>& questions, double every) {
  std::string steps;
  for (size_t i = 0; i < questions.size(); ++i)
    if (questions[i].every == every && due[i] != 0)
      steps += fmt::format("{}{}", steps.empty() ? "" : ", ", questions[i].step);
  return steps.empty() ? "none" : steps;
}

/// Compares the answers with a known wrong rule.
template <typename Rule>
bool follows(const Numbers& due, const std::vector<Question>& questions, const Rule& rule) {
  for (size_t i = 0; i < questions.size(); ++i)
    if ((due[i] != 0) != rule(std::llround(questions[i].step), std::llround(questions[i].every)))
      return false;
  return true;
}

TEST(Task2, AfterEveryKSteps) {
  std::vector<Question> questions;
  for (const double every : {3, 1, 2, 8})
    for (int step = 1; step <= 17; ++step) questions.push_back({static_cast<double>(step), every});
  Parcel input;
  Numbers steps;
  Numbers every;
  for (const Question& question : questions) {
    steps.push_back(question.step);
    every.push_back(question.every);
  }
  input.set("steps", steps);
  input.set("every", every);
  const Numbers due = lab::grading::student("aggregation_due", input).numbers("due");

  const auto is = [&](const auto& rule) { return follows(due, questions, rule); };
  if (is([](int64_t s, int64_t k) { return s % k == 0; })) return;
  const std::string seen =
      fmt::format("\nevery = 3: it should be due after steps 3, 6, 9, 12, 15; it is after {}",
                  schedule(due, questions, 3));
  if (is([](int64_t s, int64_t k) { return (s - 1) % k == 0; }))
    stop(
        "one step too early in every round, beginning with step 1: steps are counted from 1, so "
        "the first average comes after step k" +
        seen);
  if (is([](int64_t s, int64_t k) { return (s + 1) % k == 0; }))
    stop("one step too early: a round has k - 1 local steps; steps are counted from 1" + seen);
  if (is([](int64_t s, int64_t k) { return s % (k + 1) == 0; }))
    stop("k is off by one: a round has k + 1 local steps" + seen);
  if (is([](int64_t s, int64_t k) { return k == 1 || s % (k - 1) == 0; }))
    stop("k is off by one: a round has k - 1 local steps" + seen);
  if (is([](int64_t s, int64_t k) { return s > 1 && (s - 1) % k == 0; }))
    stop("one step too late: a round has k local steps, and the average follows the k-th" + seen);
  if (is([](int64_t s, int64_t k) { return s % k != 0; }))
    stop("the wrong way round: due in all steps but the right ones" + seen);
  if (is([](int64_t, int64_t) { return true; })) stop("due after every step" + seen);
  if (is([](int64_t, int64_t) { return false; })) stop("never due" + seen);
  if (is([](int64_t s, int64_t k) { return s == k; }))
    stop("due only once, after step k, and not after 2k, 3k, ..." + seen);
  stop("due after the wrong steps" + seen);
}

TEST(Task2, LateInALongRun) {
  Parcel input;
  input.set("steps", {3'000'000'000.0, 3'000'000'001.0, 2'999'999'999.0});
  input.set("every", {500.0, 500.0, 500.0});
  const Numbers due = lab::grading::student("aggregation_due", input).numbers("due");
  if (due != Numbers{1, 0, 0})
    stop("wrong for steps around 3,000,000,000: is the step kept in an int64_t?");
}

}  // namespace
}  // namespace lab03
