// Task 4: what each stage's optimizer gets, what is returned, what travels.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/grading/training_oracle.h"
#include "tests/labs/04_pipeline_1f1b/passes.h"

namespace lab04 {
namespace {

using lab::OpKind;
using lab::grading::late_messages;
using lab::grading::Operation;
using lab::grading::Parcel;
using lab::grading::StepContract;
using lab::grading::stop;

std::vector<Parcel> inputs(const Pipeline& pipeline) { return pipeline.inputs(); }

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

/// What lab::clip_gradients sends; or a single sum over all ranks, for a norm computed by hand.
bool clips(const Pipeline& pipeline, size_t stage, const std::vector<Operation>& operations) {
  const auto count = [&](OpKind kind) {
    return std::ranges::count_if(operations, [kind](const Operation& operation) {
      return operation.kind == kind && operation.bytes <= sizeof(double);
    });
  };
  const auto all = std::ssize(operations);
  if (all == 1 && count(OpKind::kAllReduce) == 1) return true;
  const bool first = stage == 0;
  const bool last = stage + 1 == pipeline.stages();
  if (first && last) return all == 0;
  return count(OpKind::kRecv) == !first && count(OpKind::kSend) == !last &&
         count(OpKind::kBroadcast) == 1 && all == !first + !last + 1;
}

void expect_clipping(const Pipeline& pipeline, size_t stage,
                     const std::vector<Operation>& operations) {
  if (clips(pipeline, stage, operations)) return;
  const bool barrier = std::ranges::count(operations, OpKind::kBarrier, &Operation::kind) > 0;
  stop(fmt::format(
      "the numbers are right, but rank {} {}\nin a step with clipping, rank {} has, apart from "
      "forward and backward: {}",
      stage,
      operations.empty()
          ? "has no part in clipping: no rank alone knows the norm of the whole model's gradient; "
            "call lab::clip_gradients on every rank, in every step"
      : barrier ? "also calls barrier: none is needed, the messages of forward, backward and "
                  "clipping make each rank wait for everything it needs"
                : "has other messages than forward, backward and clipping need: neither the loss "
                  "nor the weights travel",
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
               .how_to_clip = "call lab::clip_gradients(stage, max_gradient_norm, pipeline) on "
                              "every rank, after backward and before the update"});
  for (size_t step = 0; step < pipeline.passes(); ++step) expect_messages(pipeline, stages, step);
}

const PipelineScenario kTrainStep{"train_step", inputs, judge};
const std::set<std::string> kGiven = {"2", "3"};

TEST(Task4, ThreeStages) {
  judge_pipelines(kTrainStep, whole_world(3), 400, late_messages(40, kGiven));
}

TEST(Task4, OneStageIsLab01) {
  judge_pipelines(kTrainStep, whole_world(1), 410, late_messages(41, kGiven));
}

TEST(Task4, OneToSixStagesLateMessages) {
  judge_pipelines(kTrainStep, parts_of_six_ranks(), 420, late_messages(42, kGiven));
}

TEST(Task4, ThreeProcesses) {
  judge_pipelines(kTrainStep, parts_of_three_ranks(), 430, {.given = kGiven});
}

}  // namespace
}  // namespace lab04
