// The rank program of lab 04: calls an implementation's functions on what the verdict sends.
#include <fmt/format.h>

#include <string>
#include <vector>

#include "common/grading/rank_main.h"
#include "common/tensor/todo.h"
#include "labs/04_pipeline_1f1b/pipeline_1f1b.h"
#include "tests/labs/04_pipeline_1f1b/rank_chain.h"
#include "tests/labs/04_pipeline_1f1b/step_guard.h"
#include "tests/labs/pipeline/oracle.h"

namespace lab04 {
namespace {

using lab::LlamaStage;
using lab::ProcessGroup;
using lab::Tensor;
using lab::grading::Parcel;

/// Task 1, for every triple of "layers", "stages" and "head_costs".
Parcel run_splits(const Parcel& input) {
  const std::vector<double> layers = input.numbers("layers");
  const std::vector<double> stages = input.numbers("stages");
  const std::vector<double> head_costs = input.numbers("head_costs");
  Parcel result;
  for (size_t i = 0; i < layers.size(); ++i) {
    std::vector<double> numbers;
    try {
      for (const lab::StageSpan& span :
           split(static_cast<int64_t>(layers[i]), static_cast<int>(stages[i]), head_costs[i]))
        numbers.insert(numbers.end(),
                       {static_cast<double>(span.first_layer), static_cast<double>(span.last_layer),
                        span.embeds ? 1.0 : 0.0, span.has_head ? 1.0 : 0.0});
    } catch (const lab::NotImplemented&) {
      throw;
    } catch (const std::exception& error) {
      lab::fail("split({}, {}, {}): {}", layers[i], stages[i], head_costs[i], error.what());
    }
    result.set(fmt::format("spans.{}", i), numbers);
  }
  return result;
}

LlamaStage own_stage(const Parcel& input, const ProcessGroup& world) {
  return pipeline_tests::make_stage(
      pipeline_tests::spans_of(input.numbers("counts"))[static_cast<size_t>(world.rank())]);
}

/// Leaves what `stage` holds for microbatches in flight, for pass k.
void note_in_flight(const LlamaStage& stage, int k, Parcel& result) {
  result.set(fmt::format("in_flight.{}", k), stage.activation_bytes() > 0 ? 1.0 : 0.0);
}

/// Task 2, several passes one after the other.
Parcel run_forward(const Parcel& input, ProcessGroup& world) {
  LlamaStage stage = own_stage(input, world);
  Parcel result;
  for (int k = 0; k < static_cast<int>(input.number("passes")); ++k) {
    const Tensor output = forward(stage, input.batch(fmt::format("batch.{}", k)), world);
    note_in_flight(stage, k, result);
    std::vector<double> shape;
    if (output.defined()) {
      shape.assign(output.shape().begin(), output.shape().end());
      result.set(fmt::format("output.{}", k), output.clone());
      output.fill(kOverwritten);  // it is ours: whoever still sends it, sends this
    }
    result.set(fmt::format("shape.{}", k), shape);
    if (stage.activation_bytes() > 0) stage.discard();
  }
  if (input.number("stay") != 0) world.barrier();
  return result;
}

/// Task 3, several passes one after the other. The verdict has the right input of every stage.
Parcel run_backward(const Parcel& input, ProcessGroup& world) {
  LlamaStage stage = own_stage(input, world);
  pipeline_tests::fill_gradients(stage, static_cast<float>(input.number("leftover")));
  Parcel result;
  for (int k = 0; k < static_cast<int>(input.number("passes")); ++k) {
    const Tensor output = stage.span().embeds
                              ? stage.forward(input.batch(fmt::format("tokens.{}", k)))
                              : stage.forward(input.tensor(fmt::format("input.{}", k)));
    Tensor logits_gradient;
    if (stage.span().has_head) {
      logits_gradient = output;
      logits_gradient.copy_from(input.tensor(fmt::format("logits_gradient.{}", k)));
    }
    backward(stage, input.batch(fmt::format("batch.{}", k)), logits_gradient, world);
    note_in_flight(stage, k, result);
    result.set(fmt::format("gradients.{}", k), pipeline_tests::packed(stage, stage.gradients()));
    if (stage.activation_bytes() > 0) stage.discard();
  }
  return result;
}

/// Task 4, several steps; a batch a step.
Parcel run_train_step(const Parcel& input, ProcessGroup& world) {
  LlamaStage stage = own_stage(input, world);
  pipeline_tests::fill_gradients(stage, static_cast<float>(input.number("leftover")));
  RecordingOptimizer optimizer(
      pipeline_tests::make_optimizer(input.text("optimizer"), stage.parameters().numel()));
  const GuardedLoss loss{.rank = world.rank(), .has_head = stage.span().has_head};
  Parcel result;
  for (int step = 0; step < static_cast<int>(input.number("steps")); ++step) {
    optimizer.clear();
    step_log() = {};
    result.set(fmt::format("loss.{}", step),
               train_step(stage, optimizer, input.batch(pipeline_tests::tokens_entry(step, 0)),
                          loss, static_cast<float>(input.number("learning_rate")),
                          input.number("max_norm"), world));
    result.set(fmt::format("totals.{}", step), step_log().totals);
    result.set_text(fmt::format("events.{}", step), step_log().events);
    result.set(fmt::format("updates.{}", step), static_cast<double>(optimizer.updates().size()));
    if (!optimizer.updates().empty()) {
      const RecordingOptimizer::Update& update = optimizer.updates()[0];
      result.set(fmt::format("gradients.{}", step),
                 pipeline_tests::packed(stage, update.gradients));
      result.set(fmt::format("rate.{}", step), update.learning_rate);
    }
    result.set(fmt::format("weights.{}", step), pipeline_tests::packed(stage, stage.parameters()));
  }
  return result;
}

}  // namespace
}  // namespace lab04

int main(int argc, char** argv) {
  return lab::grading::rank_main(argc, argv,
                                 {.alone = {{"splits", lab04::run_splits},
                                            {"chain", lab04::run_chain},
                                            {"oracle", pipeline_tests::run_oracle}},
                                  .group = {{"forward", lab04::run_forward},
                                            {"backward", lab04::run_backward},
                                            {"train_step", lab04::run_train_step}}});
}
