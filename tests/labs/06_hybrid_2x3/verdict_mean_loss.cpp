// Verdict on task 7: the loss for the log.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "tests/labs/06_hybrid_2x3/verdict_grid.h"

namespace lab06 {
namespace {

using lab::grading::Expected;
using lab::grading::GroupOptions;
using lab::grading::Parcel;

constexpr double kTolerance = 1e-6;  // a loss that travels as a float passes
constexpr uint64_t kMostBytes = 256;

Expected expected_mean(const Grid& g, size_t rank, const Numbers& parts) {
  const double sum = std::accumulate(parts.begin(), parts.end(), 0.0);
  const double own = parts[static_cast<size_t>(g.pipeline(rank))];
  return {.what = "the mean loss",
          .values = {sum},
          .tolerance = {kTolerance * sum},
          .name = {},
          .mistakes =
              {{{own},
                "the part of this pipeline alone: the mean has the parts of all pipelines in it; "
                "which group connects their last stages?"},
               {{sum / g.dp},
                "divided by the number of pipelines: each part has been divided by all targets of "
                "the step already, together they are the mean"},
               {{own / g.dp},
                "the part of this pipeline alone, divided by the number of pipelines: add up the "
                "parts of all"},
               {{sum * g.pp},
                "times the number of stages: a sum that all stages of a pipeline have counts once"},
               {{sum / g.pp}, "divided by the number of stages: only last stages have a part"},
               {{sum / (g.dp * g.pp)},
                "divided by the number of ranks: the parts have been divided by all targets "
                "already, add them up"},
               {{sum * g.dp}, "times the number of pipelines: added up twice?"},
               {{parts[0]}, "the part of pipeline 0 alone"},
               {{0.0},
                "0: only last stages have a part of the loss; the others hear of it in the "
                "pipeline (lab::from_last_stage)"}},
          .if_not_finite = ""};
}

void expect_small_messages(const Grid& g, size_t rank, const Parcel& result) {
  double bytes = 0;
  for (const Operation& operation : operations(result, "operations")) bytes += operation.bytes;
  if (bytes > kMostBytes)
    lab::grading::stop(fmt::format(
        "{}: the mean loss is right, but {} bytes travel for it: a number or two are enough",
        g.name(rank), bytes));
}

/// `parts`: of each pipeline in the mean loss.
void expect_mean_loss(const Grid& g, const Numbers& parts, const GroupOptions& options) {
  std::vector<Parcel> inputs(g.ranks());
  for (size_t r = 0; r < g.ranks(); ++r) {
    g.set(inputs[r]);
    inputs[r].set("loss", g.is_last(r) ? parts[static_cast<size_t>(g.pipeline(r))] : 0.0);
  }
  const std::vector<Parcel> results = lab::grading::student_group("mean_loss", inputs, options);
  std::string right;
  std::string message;
  for (size_t r = 0; r < g.ranks(); ++r) {
    const std::string wrong =
        lab::grading::difference(results[r].numbers("mean"), expected_mean(g, r, parts));
    if (wrong.empty()) right += fmt::format(" {}", r);
    if (!wrong.empty() && message.empty()) message = fmt::format("{}: {}", g.name(r), wrong);
  }
  if (!message.empty())
    lab::grading::stop(message + (right.empty() ? "" : "\nright on the ranks" + right));
  for (size_t r = 0; r < g.ranks(); ++r) {
    const double first = results[0].number("mean");
    if (const double own = results[r].number("mean"); own != first)
      lab::grading::stop(fmt::format(
          "{} has {:.17g}, rank 0 has {:.17g}: all ranks should have the same number, to the last "
          "bit; let one of them add up, or add in the same order everywhere",
          g.name(r), own, first));
    expect_small_messages(g, r, results[r]);
  }
}

TEST(Task7, UnequalParts) { expect_mean_loss({2, 3}, {2.25, 4.1}, late(71)); }
TEST(Task7, ThreePipelines) { expect_mean_loss({3, 2}, {0.7, 1.9, 3.3}, late(72)); }
TEST(Task7, FourPipelinesOfThreeStages) {
  expect_mean_loss({4, 3}, {0.7, 1.9, 3.3, 0.21}, late(73));
}
TEST(Task7, APipelineWithoutTargets) { expect_mean_loss({2, 2}, {3.5, 0.0}, late(74)); }
TEST(Task7, OnePipeline) { expect_mean_loss({1, 4}, {3.75}, late(75)); }
TEST(Task7, PipelinesOfOneStage) { expect_mean_loss({4, 1}, {1.5, 0.25, 1.0, 0.125}, late(76)); }
TEST(Task7, ASingleRank) { expect_mean_loss({1, 1}, {5.25}, late(77)); }
TEST(Task7, OverGloo) { expect_mean_loss({2, 3}, {2.25, 4.1}, over_gloo()); }

}  // namespace
}  // namespace lab06
