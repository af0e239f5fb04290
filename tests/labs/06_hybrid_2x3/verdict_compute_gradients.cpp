// Verdict on task 5: the gradients of a step of all pipelines.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/labs/06_hybrid_2x3/verdict_gradients.h"

namespace lab06 {
namespace {

using lab::grading::GroupOptions;
using lab::grading::Parcel;

/// With a correct total_targets in the place of the implementation's.
GroupOptions with_targets(GroupOptions options) {
  options.functions = lab::grading::Functions::kPartlyGiven;
  return options;
}

void expect_step(const StepCase& c, const GroupOptions& options) {
  const std::vector<Parcel> results =
      lab::grading::student_group("gradients", c.inputs(), with_targets(options));
  const Parts p(c);
  expect_gradients(results, c, p);
  expect_losses(results, c, p);
  expect_messages(results, c);
}

TEST(Task5, TwoPipelinesOfThreeStages) { expect_step({.grid = {2, 3}}, late(51)); }
TEST(Task5, Gpipe) { expect_step({.grid = {2, 3}, .schedule = "gpipe", .wave = 2}, late(52)); }
TEST(Task5, EveryTargetCountsTheSame) { expect_step({.grid = {2, 3}, .unequal = true}, late(53)); }
TEST(Task5, SeveralWaves) {
  expect_step({.grid = {2, 3}, .wave = 2, .waves = 3, .unequal = true}, late(54));
}
TEST(Task5, LeftoverGradientsDoNotMatter) {
  expect_step({.grid = {2, 2}, .wave = 2, .leftover = 0.25F}, late(55));
}
TEST(Task5, ThreePipelinesOfTwoStages) {
  expect_step({.grid = {3, 2}, .wave = 2, .unequal = true}, late(56));
}
TEST(Task5, OnePipeline) { expect_step({.grid = {1, 3}, .wave = 4}, late(57)); }
TEST(Task5, PipelinesOfOneStage) {
  expect_step({.grid = {4, 1}, .wave = 2, .unequal = true}, late(58));
}
TEST(Task5, ASingleRank) { expect_step({.grid = {1, 1}, .wave = 2, .waves = 2}, late(59)); }
TEST(Task5, OverGloo) {
  expect_step({.grid = {2, 3}, .wave = 3, .waves = 2, .unequal = true}, over_gloo());
}

/// That the stages of the last pipeline behind its stage 1, and all ranks of other pipelines, begin
/// to add up while stage 0 of the last pipeline still waits for a gradient: the link on which that
/// one comes is so slow that everybody else has done all they can before.
void expect_posted_early(const StepCase& c, uint64_t seed) {
  const Grid& g = c.grid;
  const int slow = g.dp - 1;
  const size_t waiting = g.rank(slow, 0);
  GroupOptions options = with_targets(late(seed));
  options.simulation.slow_link = {.from = static_cast<int>(waiting) + 1,
                                  .to = static_cast<int>(waiting)};
  const std::vector<Parcel> results = lab::grading::student_group("gradients", c.inputs(), options);

  double last_gradient = 0;
  for (const Operation& operation : operations(results[waiting], "operations"))
    if (operation.kind == lab::OpKind::kRecv && operation.group == Operation::Group::kPipeline &&
        operation.bytes == c.message_bytes())
      last_gradient = std::max(last_gradient, operation.done);
  for (size_t rank = g.ranks(); rank-- > 0;) {
    if (g.pipeline(rank) == slow && g.stage(rank) < 2) continue;
    bool early = false;
    for (const Operation& operation : operations(results[rank], "operations"))
      early |= operation.kind == lab::OpKind::kAllReduce &&
               operation.group == Operation::Group::kReplicas &&
               operation.bytes == results[rank].number("gradient_bytes") &&
               operation.posted < last_gradient;
    if (!early)
      lab::grading::stop(fmt::format(
          "{} posts the all_reduce of its gradients too late: {} still waits for its last "
          "gradient, "
          "over a slow link, and it waits with it. A stage that has done its own last backward "
          "waits for its replicas only: no barrier, no clipping, no message of other stages before "
          "mesh.replicas.all_reduce",
          g.name(rank), g.name(waiting)));
  }
}

TEST(Task5, AStageThatIsDoneAddsUp) {
  expect_posted_early({.grid = {2, 3}}, 501);
  expect_posted_early({.grid = {2, 3}, .wave = 4, .waves = 2}, 502);
}
TEST(Task5, AStageThatIsDoneAddsUpWithGpipe) {
  expect_posted_early({.grid = {2, 3}, .schedule = "gpipe"}, 503);
}
TEST(Task5, StagesInTheMiddleAddUp) {
  expect_posted_early({.grid = {2, 4}}, 504);
  expect_posted_early({.grid = {2, 4}, .schedule = "gpipe", .wave = 5}, 505);
}

/// That `count` microbatches are refused, by every rank and before anything is done.
void expect_refusal(int wave, int count) {
  const StepCase c{.grid = {2, 2}, .wave = wave};
  std::vector<Parcel> inputs = c.inputs();
  const StepCase more{.grid = {2, 2}, .wave = count};
  if (count > 0) inputs = more.inputs();
  for (Parcel& input : inputs) {
    input.set("wave", wave);
    input.set("microbatches", count);
  }
  const std::vector<Parcel> results =
      lab::grading::student_group("gradients_refusal", inputs, with_targets(late(60)));
  for (size_t rank = 0; rank < results.size(); ++rank) {
    const std::string case_text = fmt::format(
        "rank {}: {} microbatches are not one or more waves of the schedule's {}; "
        "compute_gradients",
        rank, count, wave);
    const std::vector<Operation> sent = operations(results[rank], "operations");
    if (!sent.empty() || results[rank].number("losses") > 0)
      lab::grading::stop(fmt::format(
          "{} must throw lab::Error before anything is done, and has {}", case_text,
          sent.empty() ? "called loss" : fmt::format("called {}", lab::op_name(sent[0].kind))));
    if (results[rank].text("error").empty())
      lab::grading::stop(case_text + " must throw lab::Error (lab::require), and returned");
  }
}

TEST(Task5, RefusesAnIncompleteWave) {
  expect_refusal(3, 2);
  expect_refusal(3, 4);
}
TEST(Task5, RefusesNoMicrobatchesAtAll) { expect_refusal(3, 0); }

}  // namespace
}  // namespace lab06
