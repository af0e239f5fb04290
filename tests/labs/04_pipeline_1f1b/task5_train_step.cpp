// Task 5: what each stage's optimizer gets, what is returned, what travels.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/grading/training_judge.h"
#include "tests/labs/04_pipeline_1f1b/passes.h"

namespace lab04::task5 {
namespace {

using lab::OpKind;
using lab::grading::late_messages;
using lab::grading::Operation;
using lab::grading::Parcel;
using lab::grading::StepContract;
using lab::grading::stop;

/// The loss once, on the last stage: elsewhere a call is an error already. The update at the end.
void expect_order(const std::vector<Parcel>& stages, size_t step) {
  for (size_t s = 0; s < stages.size(); ++s) {
    const std::string events = stages[s].text(fmt::format("events.{}", step));
    const size_t backward = events.find("backward");
    if (backward != std::string::npos && events.find("update") < backward)
      stop(
          fmt::format("rank {}: the optimizer stepped before the backward pass: the gradients "
                      "that it got are not those of this batch",
                      s));
  }
  const size_t calls = stages.back().numbers(fmt::format("totals.{}", step)).size();
  if (calls != 1)
    stop(
        fmt::format("rank {}, the last stage, calls loss {} times in a step: it should be once, "
                    "even where nothing is predicted",
                    stages.size() - 1, calls));
}

/// What clip_gradients sends: one sum of a double.
bool clips(const Pipeline& pipeline, const std::vector<Operation>& operations) {
  if (pipeline.stages() == 1) return operations.empty();
  return operations.size() == 1 && operations[0].kind == OpKind::kAllGather &&
         operations[0].bytes == sizeof(double);
}

void expect_clipping(const Pipeline& pipeline, size_t stage,
                     const std::vector<Operation>& operations) {
  if (clips(pipeline, operations)) return;
  const bool barrier = std::ranges::count(operations, OpKind::kBarrier, &Operation::kind) > 0;
  stop(fmt::format(
      "the numbers are right, but rank {} {}\nin a step with clipping, rank {} has, apart from "
      "forward and backward: {}",
      stage,
      operations.empty()
          ? "has no part in clipping: no rank alone knows the norm of the whole model's gradient; "
            "call clip_gradients on every rank, in every step"
      : barrier ? "also calls barrier: none is needed, the messages of forward, backward and "
                  "clipping make each rank wait for everything it needs"
                : "has messages that forward, backward and clipping do not need: neither the loss "
                  "nor the weights should travel",
      stage, in_words(operations)));
}

void expect_messages(const Pipeline& pipeline, const std::vector<Parcel>& stages, size_t step) {
  for (size_t s = 0; s < stages.size(); ++s) {
    std::vector<Operation> passes = operations_of(stages[s].part(fmt::format("traffic.{}", step)));
    if (pipeline.training.max_norm > 0) {
      // Hidden states are larger than what clipping sends.
      const auto others =
          std::stable_partition(passes.begin(), passes.end(), [](const Operation& operation) {
            return is_message(operation.kind) && operation.bytes > sizeof(double);
          });
      expect_clipping(pipeline, s, {others, passes.end()});
      passes.erase(others, passes.end());
    }
    expect_messages_of_step(pipeline, s, step, passes);
  }
}

void judge(const Pipeline& pipeline, const std::vector<Parcel>& stages) {
  for (size_t step = 0; step < pipeline.passes(); ++step) expect_order(stages, step);
  judge_steps(pipeline.training, stages,
              {.loss = StepContract::Loss::kMeanOnLastStage,
               .bits_of_one_process = true,
               .how_to_clip = "call clip_gradients(stage, max_gradient_norm, pipeline) on every "
                              "rank, after backward and before the update"});
  for (size_t step = 0; step < pipeline.passes(); ++step) expect_messages(pipeline, stages, step);
}

const PipelineScenario kTrainStep{"train_step", [](const Pipeline& p) { return p.inputs(); },
                                  judge};
const std::set<std::string> kGiven = {"1", "2", "4"};

TEST(Task5, ThreeStages) {
  judge_pipelines(kTrainStep, whole_world(3), 400, late_messages(40, kGiven));
}

TEST(Task5, OneStageIsLab01) {
  judge_pipelines(kTrainStep, whole_world(1), 410, late_messages(41, kGiven));
}

TEST(Task5, OneToSixStagesWithLateMessages) {
  judge_pipelines(kTrainStep, parts_of_six_ranks(), 420, late_messages(42, kGiven));
}

TEST(Task5, ThreeProcesses) {
  judge_pipelines(kTrainStep, parts_of_three_ranks(), 430, {.given = kGiven});
}

}  // namespace
}  // namespace lab04::task5
