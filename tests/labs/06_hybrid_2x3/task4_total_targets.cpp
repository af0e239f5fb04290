// Task 4: the number of targets of a step.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/labs/06_hybrid_2x3/grid.h"

namespace lab06::task4 {
namespace {

using lab::TokenBatch;
using lab::grading::TrainingCase;

Grid grid_of(const TrainingCase& c) { return {c.replicas, c.stages()}; }

/// Of the only step.
double targets_of(const TrainingCase& c, int pipeline) {
  double sum = 0;
  for (const TokenBatch& batch : c.steps[0][static_cast<size_t>(pipeline)])
    sum += static_cast<double>(batch.target_count());
  return sum;
}

double all_targets(const TrainingCase& c) {
  double sum = 0;
  for (int d = 0; d < c.replicas; ++d) sum += targets_of(c, d);
  return sum;
}

std::vector<Mistake> mistakes(const TrainingCase& c, int pipeline) {
  double positions = 0;
  double rows = 0;
  double count = 0;
  double of_first = 0;
  double of_last = 0;
  double until_empty = 0;
  double not_zero = 0;  // tokens
  double tokens = 0;
  for (const std::vector<TokenBatch>& microbatches : c.steps[0]) {
    bool counts = true;
    for (const TokenBatch& batch : microbatches) {
      counts = counts && batch.target_count() > 0;
      if (counts) until_empty += static_cast<double>(batch.target_count());
      positions += static_cast<double>(batch.batch * (batch.length - 1));
      rows += static_cast<double>(batch.batch);
      ++count;
      of_first += static_cast<double>(microbatches[0].target_count());
      if (&batch == &microbatches.back()) of_last += static_cast<double>(batch.target_count());
      for (int64_t b = 0; b < batch.batch; ++b)
        for (int64_t t = 0; t < batch.length; ++t) {
          const int32_t token = batch.tokens[static_cast<size_t>(b * batch.length + t)];
          tokens += token != lab::kPadding;
          not_zero += t > 0 && token > 0;
        }
    }
  }
  const double sum = all_targets(c);
  const double own = targets_of(c, pipeline);
  std::vector<Mistake> mistakes = {
      {{own},
       "those of this rank's pipeline alone: the step has those of all pipelines; which group "
       "connects their last stages?"},
      {{sum + 1}, "one too many: a pipeline without targets has none"},
      {{own * c.replicas},
       "this pipeline's targets times the number of pipelines: others may have more or fewer, ask "
       "them"},
      {{own * c.stages()},
       "added up over the stages of this pipeline: only last stages have targets, one in each "
       "pipeline, and mesh.replicas connects them"},
      {{sum * c.stages()}, "those of all pipelines, once for every stage"},
      {{std::floor(sum / c.replicas)},
       "a mean over the pipelines: the step has the targets of all of them together"},
      {{positions}, "padding is not a target: TokenBatch::target_count leaves it out"},
      {{positions + rows}, "every token is counted: use TokenBatch::target_count"},
      {{rows}, "sequences are counted, not targets"},
      {{count}, "microbatches are counted, not targets"},
      {{tokens},
       "the first token of a sequence is counted, but no position predicts it: "
       "TokenBatch::target_count leaves it out"},
      {{tokens - rows},
       "the number of tokens minus the number of sequences: an empty sequence has 0 targets, not "
       "-1 (TokenBatch::target_count)"},
      {{not_zero}, "token 0 is a token like any other: only lab::kPadding is padding"},
      {{until_empty}, "counting ends at a microbatch without targets: others may come after it"},
      {{of_last}, "those of the last microbatch of each pipeline alone: add up all of them"},
      {{of_first}, "those of the first microbatch times the number of microbatches: they differ"},
      {{0.0},
       "0, although this is a last stage: every last stage (stage.span().has_head) counts its "
       "targets"}};
  for (Mistake& mistake : mistakes) mistake.message = "the targets of the step: " + mistake.message;
  return mistakes;
}

/// At most one collective of a number among the replicas, and nothing else.
void expect_one_sum(const Grid& g, size_t rank, const Parcel& result) {
  constexpr uint64_t kMostBytes = 2 * sizeof(double);
  const std::vector<Operation> sent = operations_of(result.part("sent"));
  for (const Operation& operation : sent)
    if (sent.size() > 1 || lab::is_message(operation.kind) || operation.bytes > kMostBytes ||
        operation.bytes == 0 || operation.group != g.column(rank))
      stop(
          fmt::format("{}: the number is right, but it calls {}: one sum of one number over "
                      "mesh.replicas is all that is needed",
                      g.name(rank), in_words(sent)));
}

void judge(const TrainingCase& c, const std::vector<Parcel>& ranks) {
  const Grid g = grid_of(c);
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    const Expected expected{.what = "the targets of the step",
                            .values = {all_targets(c)},
                            .tolerance = {0.01},
                            .mistakes = [&] { return mistakes(c, g.pipeline(rank)); }};
    if (const std::string wrong = difference(ranks[rank].numbers("total"), expected);
        g.is_last(rank) && !wrong.empty())
      stop(fmt::format("{}: {}", g.name(rank), wrong));
  }
  for (size_t rank = 0; rank < ranks.size(); ++rank) expect_one_sum(g, rank, ranks[rank]);
}

/// Each step of the training cases, separately; and one in which only pipeline d has no targets.
std::vector<TrainingCase> cases_of(const Grid& g, uint64_t seed) {
  std::vector<TrainingCase> cases;
  auto drawn = lab::grading::draw_cases({.replicas = g.dp, .stages = g.pp},
                                        1000 * lab::grading::scenario_seed() + seed);
  drawn.pop_back();  // twenty steps
  for (const TrainingCase& c : drawn)
    for (const auto& step : c.steps) {
      cases.push_back(c);
      cases.back().steps = {step};
    }
  // Where all pipelines have equally many, mistakes look alike: not first.
  std::rotate(cases.begin(), cases.begin() + 2, cases.end());
  for (int d = 0; d < g.dp; ++d) {
    cases.push_back(drawn[1]);
    cases.back().name = fmt::format("pipeline {} has no targets", d);
    cases.back().steps.resize(1);
    for (TokenBatch& batch : cases.back().steps[0][static_cast<size_t>(d)]) remove_targets(batch);
  }
  return cases;
}

Call call_of(const TrainingCase& c) {
  Call call{.scenario = "total_targets", .inputs = {}, .name = c.name};
  const Grid g = grid_of(c);
  for (int rank = 0; rank < c.ranks(); ++rank) {
    call.inputs.push_back(c.input(rank));
    g.set(call.inputs.back());
    // First stages, too, unless there are two: those have tokens that nobody must count twice.
    if (g.pp > 2 && rank % g.pp == 0) call.inputs.back().set("no_tokens", 1.0);
  }
  return call;
}

void expect_totals(const std::vector<TrainingCase>& cases, JobOptions options) {
  options.given = {"2"};
  std::vector<Call> calls;
  for (const TrainingCase& c : cases) calls.push_back(call_of(c));
  judge_calls(calls, options,
              [&](size_t k, const std::vector<Parcel>& ranks) { judge(cases[k], ranks); });
}

TEST(Task4, TwoPipelinesOfThreeStages) { expect_totals(cases_of({2, 3}, 41), late_messages(41)); }
// What is sent to ranks that do not need it gets through, and is counted.
TEST(Task4, ThreePipelinesOfTwoStages) {
  expect_totals(cases_of({3, 2}, 42), lab::grading::buffered_messages());
}
TEST(Task4, OnePipeline) { expect_totals(cases_of({1, 4}, 43), late_messages(43)); }
TEST(Task4, PipelinesOfOneStage) { expect_totals(cases_of({4, 1}, 44), late_messages(44)); }

// More than floats can tell apart, on one rank and in all.
TEST(Task4, ManyTargetsAreCountedExactly) {
  const double most = std::ldexp(1.0, 24);
  const std::vector<std::pair<double, double>> rows = {{most + 2, 3}, {most / 2 + 1, most / 2 + 4}};
  std::vector<Call> calls;
  for (const auto& [one, other] : rows) {
    calls.push_back(call_of(cases_of({2, 1}, 47)[0]));
    calls.back().name = fmt::format("rows of {:.0f} and {:.0f} tokens", one, other);
    calls.back().inputs[0].set("long_row", one);
    calls.back().inputs[1].set("long_row", other);
  }
  judge_calls(calls, late_messages(47, {"2"}), [&](size_t k, const std::vector<Parcel>& ranks) {
    const double right = rows[k].first + rows[k].second - 2;  // the first of a row is no target
    for (const Parcel& rank : ranks)
      if (const double got = rank.number("total"); got != right)
        stop(fmt::format(
            "{:.0f} targets instead of {:.0f}{}", got, right,
            got == rows[k].first - 1 || got == rows[k].second - 1 ? ": those of this pipeline alone"
            : std::abs(got - right) < 4 && got == static_cast<float>(got)
                ? ": a float counts only up to 16,777,216; lab::sum_over adds up doubles"
                : ""));
  });
}

TEST(Task4, OverGloo) {
  const std::vector<TrainingCase> cases = cases_of({2, 3}, 48);
  expect_totals({cases[0], cases[1], cases.back()}, {});
}

}  // namespace
}  // namespace lab06::task4
