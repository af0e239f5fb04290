// The rank program of lab 05: the contract's functions, and the scenarios that call them.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "common/error.h"
#include "common/run/timeline/recorded_timeline.h"
#include "common/tensor/memory_account.h"
#include "common/todo.h"
#include "labs/05_microbatches/microbatches.h"
#include "tests/grading/implementation.h"
#include "tests/grading/rank_main.h"
#include "tests/grading/reference.h"
#include "tests/grading/refusal.h"
#include "tests/grading/training_rank.h"
#include "tests/labs/05_microbatches/rank_correct.h"
#include "tests/unit/pipeline_plans.h"

using lab::ProcessGroup;
using lab::Schedule;
using lab::Tensor;
using lab::TokenBatch;
using lab::grading::is_given;
using lab::grading::own;
using lab::grading::Parcel;

namespace lab05 {
namespace {

/// Thrown by run_actions about a call that train_step must not make. Not lab::Error: that is what
/// train_step itself must throw about its arguments.
class Refused : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// What train_step was given; no schedule: no step is in progress. Simulated ranks are threads.
struct StepUnderWay {
  const Schedule* schedule = nullptr;
  std::span<const TokenBatch> microbatches = {};
  std::vector<bool> taken = {};  // by a wave
  bool refuses = false;          // the microbatches do not fill waves
};
StepUnderWay& step_under_way() {
  thread_local StepUnderWay step;
  return step;
}

bool same(const TokenBatch& a, const TokenBatch& b) {
  return a.batch == b.batch && a.length == b.length && a.tokens == b.tokens;
}

/// The numbers of a wave's microbatches among those of the step. Copies are known by their content:
/// of equal ones, the first that no wave has taken.
std::vector<int> numbers_of(std::span<const TokenBatch> wave, StepUnderWay& step) {
  std::vector<int> numbers;
  for (const TokenBatch& batch : wave) {
    int number = -1;
    for (size_t k = 0; k < step.microbatches.size(); ++k) {
      if (&batch == &step.microbatches[k]) {
        number = static_cast<int>(k);
        break;
      }
      if (!same(batch, step.microbatches[k])) continue;
      if (number < 0 || (step.taken[static_cast<size_t>(number)] && !step.taken[k]))
        number = static_cast<int>(k);
    }
    if (number >= 0) step.taken[static_cast<size_t>(number)] = true;
    numbers.push_back(number);
  }
  return numbers;
}

/// Notes the call of run_actions, and refuses one that a step must not make.
void note_wave(const lab::ActionList& actions, std::span<const TokenBatch> microbatches, int rank) {
  StepUnderWay& step = step_under_way();
  if (step.schedule == nullptr) return;
  lab::grading::record_event(
      fmt::format("wave:{}", fmt::join(numbers_of(microbatches, step), ",")));
  if (step.refuses) throw Refused("a wave was run");
  const std::vector<lab::ActionList>& lists = step.schedule->stages;
  const auto found = std::ranges::find(lists, actions);
  if (actions != lists[static_cast<size_t>(rank)])
    throw Refused(
        found == lists.end()
            ? std::string("run_actions was called with a list of actions that no stage of the "
                          "schedule has: pass schedule.stages[pipeline.rank()]")
            : fmt::format("run_actions was called with the actions of stage {}; this rank is stage "
                          "{}: schedule.stages[pipeline.rank()]",
                          found - lists.begin(), rank));
  if (microbatches.size() < static_cast<size_t>(step.schedule->microbatches))
    throw Refused(fmt::format("run_actions was called with {} of the {} microbatches of a wave",
                              microbatches.size(), step.schedule->microbatches));
}

}  // namespace

// In the place of the student's for tasks 4 to 6.

namespace given_3 {
// With all that it calls, which must not remain elsewhere in the program.
LAB_GIVEN [[gnu::flatten]] Schedule with_blocking_messages(const Schedule& plan) {
  return lab::with_messages_beside(plan, false);
}
}  // namespace given_3

namespace given_5 {
LAB_GIVEN [[gnu::flatten]] Schedule with_messages(const Schedule& plan) {
  return lab::with_messages_beside(plan, true);
}
}  // namespace given_5

// The contract's functions.

Schedule gpipe(int stages, int microbatches) { return own(&gpipe)(stages, microbatches); }

Schedule one_f_one_b(int stages, int microbatches) {
  return own(&one_f_one_b)(stages, microbatches);
}

Schedule with_blocking_messages(const Schedule& plan) {
  return is_given("3") ? given_3::with_blocking_messages(plan) : own(&with_blocking_messages)(plan);
}

double run_actions(lab::LlamaStage& stage, const lab::ActionList& actions,
                   std::span<const TokenBatch> microbatches, const LossFunction& loss,
                   int64_t total_targets, ProcessGroup& pipeline) {
  note_wave(actions, microbatches, pipeline.rank());
  const auto run = is_given("4b") ? &given_4b::run_actions : own(&run_actions);
  return run(stage, actions, microbatches, loss, total_targets, pipeline);
}

Schedule with_messages(const Schedule& plan) {
  return is_given("5") ? given_5::with_messages(plan) : own(&with_messages)(plan);
}

double train_step(lab::LlamaStage& stage, lab::Optimizer& optimizer, const Schedule& schedule,
                  std::span<const TokenBatch> microbatches, const LossFunction& loss,
                  float learning_rate, double max_gradient_norm, ProcessGroup& pipeline) {
  return own(&train_step)(stage, optimizer, schedule, microbatches, loss, learning_rate,
                          max_gradient_norm, pipeline);
}

namespace {

/// What no text of a schedule can say; nothing if it can.
std::string untold(const Schedule& schedule) {
  for (int stage = 0; stage < schedule.stage_count(); ++stage)
    for (const lab::Action& action : schedule.stages[static_cast<size_t>(stage)]) {
      if (action.microbatch < 0)
        return fmt::format("stage {} has an action for microbatch {}: they count from 0", stage,
                           action.microbatch);
      if (action.posted && !is_message(action.kind))
        return fmt::format("the {} of microbatch {} on stage {} is posted: only messages can be",
                           action.kind == lab::ActionKind::kForward ? "forward" : "backward",
                           action.microbatch, stage);
    }
  return "";
}

/// Tasks 1, 2, 3 and 5. Text that contradicts itself could not be read, so the number of
/// microbatches that a schedule claims to have is passed separately; what is wrong with it is for
/// the verdict to say.
Parcel run_schedule(const Parcel& input) {
  const std::string& function = input.text("function");
  const auto count = [&](const char* name) { return static_cast<int>(input.number(name)); };
  const auto plan = [&] { return lab::schedule_from_text(input.text("plan"), "plan"); };
  Schedule schedule = function == "gpipe" ? gpipe(count("stages"), count("microbatches"))
                      : function == "one_f_one_b"
                          ? one_f_one_b(count("stages"), count("microbatches"))
                      : function == "with_messages" ? with_messages(plan())
                                                    : with_blocking_messages(plan());
  Parcel result;
  result.set_text("untold", untold(schedule));
  result.set("microbatches", schedule.microbatches);
  schedule.microbatches = std::max(schedule.microbatches, 1);
  for (const lab::ActionList& list : schedule.stages)
    for (const lab::Action& action : list)
      schedule.microbatches = std::max(schedule.microbatches, action.microbatch + 1);
  result.set_text("schedule", to_text(schedule));
  return result;
}

/// The pipeline that this rank belongs to, if the world consists of several.
std::optional<ProcessGroup> part_of(const Parcel& input, ProcessGroup& world) {
  const auto number = static_cast<int>(input.number("pipeline"));
  if (number < 0) return std::nullopt;
  return world.split(number, world.rank(), fmt::format("pipeline {}", number));
}

/// How many passes and sends this rank has begun: those of a list begin in its order.
uint64_t begun(const lab::FlightRecorder& recorder) {
  uint64_t count = 0;
  const lab::RankSnapshot snapshot = recorder.snapshot();
  for (const lab::OpKind kind : {lab::OpKind::kForward, lab::OpKind::kBackward, lab::OpKind::kSend})
    count += snapshot.traffic[static_cast<size_t>(kind)].operations;
  return count;
}

/// "in or after >F0, action 3 of 7": the last pass or send of the `count` that have begun.
std::string place_in(const lab::ActionList& actions, uint64_t count) {
  std::string place = "before the first pass";
  for (size_t i = 0; count > 0 && i < actions.size(); ++i) {
    if (is_message(actions[i].kind) && !is_send(actions[i].kind)) continue;
    --count;
    place = fmt::format("in or after {}, action {} of {}", to_string(actions[i]), i + 1,
                        actions.size());
  }
  return place;
}

/// run_actions; an exception out of it says where in the list it was thrown.
double run_and_locate(lab::LlamaStage& stage, const lab::ActionList& actions,
                      std::span<const TokenBatch> microbatches, const LossFunction& loss,
                      int64_t total_targets, ProcessGroup& pipeline,
                      const lab::FlightRecorder& recorder) {
  const uint64_t before = begun(recorder);
  try {
    return run_actions(stage, actions, microbatches, loss, total_targets, pipeline);
  } catch (const lab::NotImplemented&) {
    throw;
  } catch (const lab::BrokenOff&) {
    throw;
  } catch (const std::exception& error) {
    throw std::runtime_error(
        fmt::format("{} ({})", error.what(), place_in(actions, begun(recorder) - before)));
  }
}

/// Tasks 4a and 4b: one wave of one stage.
Parcel run_wave(const Parcel& input, ProcessGroup& world) {
  std::optional<ProcessGroup> part = part_of(input, world);
  ProcessGroup& pipeline = part ? *part : world;
  const Schedule schedule = lab::schedule_from_text(input.text("schedule"), "schedule");
  std::vector<TokenBatch> microbatches;
  for (int k = 0; k < schedule.microbatches; ++k)
    microbatches.push_back(input.batch(fmt::format("microbatch.0.{}", k)));
  lab::LlamaStage stage(lab::grading::model_of(input), lab::grading::span_of(input),
                        lab::Device::kCpu, static_cast<uint64_t>(input.number("seed")));
  lab::grading::fill_gradients(stage, static_cast<float>(input.number("leftover")));
  lab::record_passes(stage, world.recorder());

  StepUnderWay known{.microbatches = microbatches,
                     .taken = std::vector<bool>(microbatches.size(), false)};
  std::vector<double> totals;
  std::vector<double> order;  // of the microbatches that the loss is asked about
  const double lost = input.number("lost");
  const LossFunction loss = [&](const Tensor& logits, const TokenBatch& batch, int64_t total) {
    totals.push_back(static_cast<double>(total));
    order.push_back(numbers_of({&batch, 1}, known)[0]);
    const double value = lab::grading::reference_loss(logits, batch, total);
    return std::isfinite(lost) ? value : lost;
  };
  const auto memory = std::make_shared<lab::MemoryAccount>();
  Parcel result;
  {
    const lab::CountMemory count(memory);
    result.set("loss",
               run_and_locate(stage, schedule.stages.at(static_cast<size_t>(pipeline.rank())),
                              microbatches, loss, static_cast<int64_t>(input.number("total")),
                              pipeline, world.recorder()));
  }
  result.set("held", static_cast<double>(memory->peak(lab::MemoryKind::kScratch)));
  // Outputs are activations; most of those that the stage itself needs are there at the end, too.
  const auto activations = lab::MemoryKind::kActivations;
  result.set("outputs",
             static_cast<double>(memory->peak(activations) - memory->bytes(activations)));
  result.set("totals", totals);
  result.set("order", order);
  result.set("gradients", lab::grading::packed(stage, stage.gradients()));
  return result;
}

/// Task 6.
Parcel run_train_step(const Parcel& input, ProcessGroup& world) {
  std::optional<ProcessGroup> part = part_of(input, world);
  ProcessGroup& pipeline = part ? *part : world;
  const Schedule schedule = lab::schedule_from_text(input.text("schedule"), "schedule");
  const bool refuses = input.has("refuses");
  Parcel refusals;
  Parcel result =
      lab::grading::record_steps(input, &pipeline, [&](const lab::grading::StepArguments& a) {
        step_under_way() = {&schedule, a.microbatches,
                            std::vector<bool>(a.microbatches.size(), false), refuses};
        double loss = 0;
        const auto take_step = [&] {
          loss = train_step(a.stage, a.optimizer, schedule, a.microbatches, a.loss, a.learning_rate,
                            a.max_norm, pipeline);
        };
        if (refuses)
          refusals.set_text(fmt::format("refusal.{}", a.step - 1),
                            lab::grading::refusal_of(take_step));
        else
          take_step();
        step_under_way() = {};
        if (refuses)
          refusals.set(fmt::format("left.{}", a.step - 1),
                       lab::grading::packed(a.stage, a.stage.gradients()));
        return loss;
      });
  result.set("refusals", refusals);
  return result;
}

}  // namespace
}  // namespace lab05

int main(int argc, char** argv) {
  return lab::grading::rank_main(
      argc, argv,
      {.alone = {{"schedule", lab05::run_schedule}},
       .group = {{"wave", lab05::run_wave}, {"train_step", lab05::run_train_step}}});
}
