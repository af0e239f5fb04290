// Verdict on task 4: the number of targets of a step.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "tests/labs/01_single_gpu/random_input.h"
#include "tests/labs/06_hybrid_2x3/verdict_grid.h"
#include "tests/labs/pipeline/tiny_pipeline.h"

namespace lab06 {
namespace {

using lab::TokenBatch;
using lab::grading::Expected;
using lab::grading::GroupOptions;
using lab::grading::Parcel;

constexpr int64_t kLength = 8;

/// What a rank gets: rows of the lengths `rows`, one row a microbatch.
std::vector<TokenBatch> microbatches(const std::vector<int64_t>& rows, uint64_t seed) {
  std::vector<TokenBatch> batches;
  for (int64_t length : rows)
    batches.push_back(lab01::random_tokens({length}, kLength, pipeline_tests::kVocab, seed++));
  return batches;
}

double targets(const std::vector<TokenBatch>& batches) {
  return std::accumulate(batches.begin(), batches.end(), 0.0, [](double sum, const TokenBatch& b) {
    return sum + static_cast<double>(b.target_count());
  });
}

/// `rows`: of each pipeline's last stage. The other stages have other targets, that mean nothing.
std::vector<std::vector<TokenBatch>> all_microbatches(
    const Grid& g, const std::vector<std::vector<int64_t>>& rows) {
  std::vector<std::vector<TokenBatch>> all;
  for (size_t r = 0; r < g.ranks(); ++r) {
    std::vector<int64_t> own = rows[static_cast<size_t>(g.pipeline(r))];
    if (!g.is_last(r))
      for (int64_t& length : own) length = 1 + (length + g.stage(r)) % (kLength - 1);
    all.push_back(microbatches(own, 400 + 10 * r));
  }
  return all;
}

Expected expected_total(const Grid& g, size_t rank,
                        const std::vector<std::vector<TokenBatch>>& all) {
  double sum = 0;
  double positions = 0;
  double rows = 0;
  double everybody = 0;
  double own_pipeline = 0;
  for (size_t r = 0; r < g.ranks(); ++r) {
    everybody += targets(all[r]);
    if (g.pipeline(r) == g.pipeline(rank)) own_pipeline += targets(all[r]);
    if (!g.is_last(r)) continue;
    sum += targets(all[r]);
    rows += static_cast<double>(all[r].size());
    positions += static_cast<double>(all[r].size()) * kLength;
  }
  return {
      .what = "the targets of the step",
      .values = {sum},
      .tolerance = {0.01},
      .name = {},
      .mistakes =
          {{{targets(all[rank])},
            "the targets of this rank's pipeline alone: the step has those of all pipelines; "
            "which group connects their last stages?"},
           {{own_pipeline},
            "added up over the stages of this pipeline: only last stages have targets, one in "
            "each pipeline, and mesh.replicas connects them"},
           {{everybody}, "added up over all stages: only the last stage of a pipeline has targets"},
           {{targets(all[rank]) * g.dp},
            "this pipeline's targets times the number of pipelines: others may have more or "
            "fewer, ask them"},
           {{sum * g.pp}, "the targets of all pipelines, once for every stage"},
           {{sum / g.dp},
            "a mean over the pipelines: the step has the targets of all of them together"},
           {{positions},
            "all positions are counted: TokenBatch::target_count knows which are "
            "targets"},
           {{positions - rows}, "padding is no target: TokenBatch::target_count knows"},
           {{rows}, "microbatches are counted, not targets"}},
      .if_not_finite = ""};
}

/// At most one collective, of a number.
void expect_one_sum(const Grid& g, size_t rank, const Parcel& result) {
  const std::vector<Operation> all = operations(result, "operations");
  for (const Operation& operation : all)
    if (lab::is_message(operation.kind) || operation.bytes > 2 * sizeof(double))
      lab::grading::stop(
          fmt::format("{}: the number is right, but it takes a {}: one sum of one "
                      "number over mesh.replicas is all that is needed",
                      g.name(rank), in_words(operation)));
  if (all.size() > 1)
    lab::grading::stop(
        fmt::format("{}: the number is right, but it takes {} collectives, the first one a {}: one "
                    "sum over mesh.replicas is all that is needed",
                    g.name(rank), all.size(), in_words(all[0])));
}

void expect_total(const Grid& g, const std::vector<std::vector<int64_t>>& rows,
                  const GroupOptions& options) {
  const auto all = all_microbatches(g, rows);
  std::vector<Parcel> inputs(g.ranks());
  for (size_t r = 0; r < g.ranks(); ++r) {
    g.set(inputs[r]);
    inputs[r].set("microbatches", static_cast<double>(all[r].size()));
    for (size_t k = 0; k < all[r].size(); ++k)
      inputs[r].set(fmt::format("microbatch.{}", k), all[r][k]);
  }
  const std::vector<Parcel> results = lab::grading::student_group("total_targets", inputs, options);
  for (size_t r = 0; r < g.ranks(); ++r) {
    if (!g.is_last(r)) continue;
    const std::string wrong =
        lab::grading::difference(results[r].numbers("total"), expected_total(g, r, all));
    if (!wrong.empty()) lab::grading::stop(fmt::format("{}: {}", g.name(r), wrong));
  }
  for (size_t r = 0; r < g.ranks(); ++r) expect_one_sum(g, r, results[r]);
}

TEST(Task4, EqualPipelines) { expect_total({2, 3}, {{8, 8, 8}, {8, 8, 8}}, late(41)); }
TEST(Task4, UnequalPipelines) { expect_total({2, 3}, {{8, 3, 5}, {2, 8, 4}}, late(42)); }
TEST(Task4, ThreePipelines) { expect_total({3, 2}, {{8, 3}, {2, 4}, {6, 6}}, late(43)); }
TEST(Task4, APipelineWithoutTargets) { expect_total({2, 2}, {{8, 3}, {1, 1}}, late(44)); }
TEST(Task4, OnePipeline) { expect_total({1, 3}, {{8, 3, 5}}, late(45)); }
TEST(Task4, PipelinesOfOneStage) { expect_total({4, 1}, {{8}, {3}, {5}, {2}}, late(46)); }
TEST(Task4, ASingleRank) { expect_total({1, 1}, {{8, 4}}, late(47)); }
TEST(Task4, OverGloo) { expect_total({2, 3}, {{8, 3, 5}, {2, 8, 4}}, over_gloo()); }

// As many as a float can tell apart, and one more.
TEST(Task4, ManyTargetsAreCountedExactly) {
  const Grid g{2, 1};
  const double most = std::ldexp(1.0, 24);
  std::vector<Parcel> inputs(g.ranks());
  for (size_t r = 0; r < g.ranks(); ++r) {
    g.set(inputs[r]);
    inputs[r].set("microbatches", 0);
    inputs[r].set("long_row", r == 0 ? most + 1 : 2);  // the first token is no target
  }
  const std::vector<Parcel> results =
      lab::grading::student_group("total_targets", inputs, late(48));
  for (size_t r = 0; r < g.ranks(); ++r)
    if (const double got = results[r].number("total"); got != most + 1)
      lab::grading::stop(fmt::format(
          "{}: {:.0f} targets instead of {:.0f}{}", g.name(r), got, most + 1,
          got == most ? ": a float counts up to 16,777,216 only; lab::sum_over adds up doubles"
                      : ""));
}

}  // namespace
}  // namespace lab06
