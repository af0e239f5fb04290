// The rank program of lab 04: the contract's functions, and the scenarios that call them.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <exception>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/comm/agreement.h"
#include "common/error.h"
#include "common/ops/ops.h"
#include "common/optim/clip.h"
#include "common/todo.h"
#include "labs/04_pipeline_1f1b/pipeline_1f1b.h"
#include "tests/grading/implementation.h"
#include "tests/grading/operations.h"
#include "tests/grading/rank_main.h"
#include "tests/grading/refusal.h"
#include "tests/grading/training_rank.h"

using lab::LlamaStage;
using lab::ProcessGroup;
using lab::Shape;
using lab::Tensor;
using lab::TokenBatch;
using lab::grading::own;
using lab::grading::Parcel;
using lab::grading::record_event;

namespace lab04 {
namespace {

// In the place of the student's for task 5. They refuse what the contract leaves undefined, and
// what no passes can answer.

Tensor hidden_states(const LlamaStage& stage, const TokenBatch& batch) {
  return Tensor::empty({batch.batch, batch.length, stage.config().dim});
}

/// What has happened in this rank's step; simulated ranks are threads.
struct StepState {
  bool forward = false;
  Tensor logits = {};  // as they were before the loss
};
StepState& step_state() {
  thread_local StepState state;
  return state;
}

}  // namespace

namespace given_1 {

LAB_GIVEN Tensor forward(LlamaStage& stage, const TokenBatch& batch, ProcessGroup& pipeline) {
  const int rank = pipeline.rank();
  lab::require(
      !std::exchange(step_state().forward, true),
      "train_step calls forward again on rank {}: one step is one forward and one backward", rank);
  lab::require(stage.activation_bytes() == 0,
               "on rank {} the previous step has ended without its backward: every forward needs "
               "one, even where nothing is predicted",
               rank);
  Tensor output;
  if (stage.span().embeds) {
    output = stage.forward(batch);
  } else {
    const Tensor input = hidden_states(stage, batch);
    pipeline.recv(input, rank - 1);
    output = stage.forward(input);
  }
  if (!stage.span().has_head) pipeline.send(output, rank + 1);
  return output;
}

}  // namespace given_1

namespace given_2 {

void check_logits_gradient(bool has_head, const Tensor& gradient, int rank) {
  lab::require(has_head || !gradient.defined(),
               "train_step gives backward a logits_gradient on rank {}, which has no logits: "
               "except on the last stage it is an undefined tensor, lab::Tensor()",
               rank);
  lab::require(!has_head || gradient.defined(),
               "train_step gives backward no gradient of the logits on rank {}, the last stage: "
               "the loss leaves it in what forward returned",
               rank);
  const Tensor& logits = step_state().logits;
  lab::require(!gradient.defined() || !logits.defined() ||
                   !std::ranges::equal(gradient.values(), logits.values()),
               "rank {}: the backward pass began with the logits themselves: begin with their "
               "gradient, which the loss leaves in the tensor that it is given",
               rank);
}

LAB_GIVEN void backward(LlamaStage& stage, const TokenBatch& batch, const Tensor& logits_gradient,
                        ProcessGroup& pipeline) {
  const int rank = pipeline.rank();
  lab::require(stage.activation_bytes() > 0,
               "train_step calls backward on rank {} without a forward before it", rank);
  check_logits_gradient(stage.span().has_head, logits_gradient, rank);
  Tensor output_gradient = logits_gradient;
  if (!stage.span().has_head) {
    output_gradient = hidden_states(stage, batch);
    pipeline.recv(output_gradient, rank + 1);
  }
  const Tensor input_gradient = stage.backward(output_gradient);
  if (!stage.span().embeds) pipeline.send(input_gradient, rank - 1);
}

}  // namespace given_2

namespace given_4 {

LAB_GIVEN double clip_gradients(const LlamaStage& stage, double max_norm, ProcessGroup& pipeline) {
  lab::require(max_norm > 0.0, "clip_gradients: max_norm is {}, it must be positive", max_norm);
  const double own_norm = lab::gradient_norm(stage);
  const double norm = std::sqrt(lab::sum_over(pipeline, own_norm * own_norm));
  if (norm > max_norm) lab::scale(stage.gradients(), static_cast<float>(max_norm / norm));
  return norm;
}

}  // namespace given_4

// The contract's functions.

Tensor forward(LlamaStage& stage, const TokenBatch& batch, ProcessGroup& pipeline) {
  record_event("forward");
  if (lab::grading::is_given("1")) return given_1::forward(stage, batch, pipeline);
  return own(&forward)(stage, batch, pipeline);
}

void backward(LlamaStage& stage, const TokenBatch& batch, const Tensor& logits_gradient,
              ProcessGroup& pipeline) {
  record_event("backward");
  if (lab::grading::is_given("2"))
    return given_2::backward(stage, batch, logits_gradient, pipeline);
  return own(&backward)(stage, batch, logits_gradient, pipeline);
}

std::vector<lab::StageSpan> split(int64_t layers, int stages, double head_cost) {
  return own(&split)(layers, stages, head_cost);
}

double clip_gradients(LlamaStage& stage, double max_norm, ProcessGroup& pipeline) {
  if (lab::grading::is_given("4")) return given_4::clip_gradients(stage, max_norm, pipeline);
  return own(&clip_gradients)(stage, max_norm, pipeline);
}

double train_step(LlamaStage& stage, lab::Optimizer& optimizer, const TokenBatch& batch,
                  const LossFunction& loss, float learning_rate, double max_gradient_norm,
                  ProcessGroup& pipeline) {
  return own(&train_step)(stage, optimizer, batch, loss, learning_rate, max_gradient_norm,
                          pipeline);
}

namespace {

/// The pipeline of this rank if it is one of several groups that divide the world.
std::optional<ProcessGroup> part_of_world(const Parcel& input, ProcessGroup& world) {
  const auto color = static_cast<int>(input.number("pipeline"));
  if (color < 0) return std::nullopt;
  return world.split(color, static_cast<int>(input.number("stage")),
                     fmt::format("pipeline {}", color));
}

/// A stage and its passes, one for each batch.
struct Passes {
  explicit Passes(const Parcel& parcel)
      : input(parcel),
        stage(lab::grading::model_of(input), lab::grading::span_of(input), lab::Device::kCpu,
              static_cast<uint64_t>(input.number("seed"))),
        count(static_cast<int>(input.number("steps"))) {
    lab::grading::fill_gradients(stage, static_cast<float>(input.number("leftover")));
    result.set("start", lab::grading::packed(stage, stage.parameters()));
  }

  static std::string entry(const std::string& name, int k) { return fmt::format("{}.{}", name, k); }
  TokenBatch batch(int k) const { return input.batch(fmt::format("microbatch.{}.0", k)); }

  /// Runs pass k, and leaves what has happened to the stage and on the network.
  template <typename Pass>
  void run(int k, ProcessGroup& pipeline, const Pass& pass) {
    const uint64_t last = lab::grading::last_operation(pipeline.recorder());
    pass();
    Parcel traffic;
    lab::grading::note_operations(pipeline.recorder(), last, traffic);
    result.set(entry("traffic", k), traffic);
    result.set(entry("gradients", k), lab::grading::packed(stage, stage.gradients()));
    result.set(entry("weights", k), lab::grading::packed(stage, stage.parameters()));
    result.set(entry("in_flight", k), static_cast<double>(stage.activation_bytes()));
    if (stage.activation_bytes() > 0)
      lab::require(lab::failure_of([&] { stage.discard(); }).empty(),
                   "stage.forward was given a microbatch number other than 0: use 0, the default, "
                   "here and in backward");
  }

  const Parcel& input;
  LlamaStage stage;
  int count;
  Parcel result;
};

/// Task 1.
Parcel run_forward(const Parcel& input, ProcessGroup& world) {
  std::optional<ProcessGroup> part = part_of_world(input, world);
  ProcessGroup& pipeline = part ? *part : world;
  Passes passes(input);
  for (int k = 0; k < passes.count; ++k)
    passes.run(k, pipeline, [&] {
      const Tensor output = forward(passes.stage, passes.batch(k), pipeline);
      if (output.defined()) passes.result.set(Passes::entry("output", k), output.clone());
    });
  return passes.result;
}

/// Task 2. The verdict has the right input of every stage.
Parcel run_backward(const Parcel& input, ProcessGroup& world) {
  std::optional<ProcessGroup> part = part_of_world(input, world);
  ProcessGroup& pipeline = part ? *part : world;
  Passes passes(input);
  LlamaStage& stage = passes.stage;
  for (int k = 0; k < passes.count; ++k) {
    const Tensor output = stage.span().embeds
                              ? stage.forward(input.batch(Passes::entry("tokens", k)))
                              : stage.forward(input.tensor(Passes::entry("input", k)));
    Tensor logits_gradient;
    if (stage.span().has_head) {
      logits_gradient = output;
      logits_gradient.copy_from(input.tensor(Passes::entry("logits_gradient", k)));
    }
    passes.run(k, pipeline, [&] { backward(stage, passes.batch(k), logits_gradient, pipeline); });
  }
  return passes.result;
}

/// Task 3: many splits, one after the other.
Parcel run_splits(const Parcel& input) {
  const std::vector<double> stages = input.numbers("stages");
  const double head_cost = input.number("head_cost");
  Parcel result;
  for (size_t i = 0; i < stages.size(); ++i) {
    const double layers = input.numbers("layers")[i];
    std::vector<double> numbers;
    try {
      for (const lab::StageSpan& span :
           split(static_cast<int64_t>(layers), static_cast<int>(stages[i]), head_cost))
        numbers.insert(numbers.end(),
                       {static_cast<double>(span.first_layer), static_cast<double>(span.last_layer),
                        span.embeds ? 1.0 : 0.0, span.has_head ? 1.0 : 0.0});
    } catch (const lab::NotImplemented&) {
      throw;
    } catch (const std::exception& error) {
      lab::fail("split({}, {}, {}): {}", layers, stages[i], head_cost, error.what());
    }
    result.set(fmt::format("spans.{}", i), numbers);
  }
  return result;
}

/// `packed`: those of all parameters, one after the other.
void set_gradients(const LlamaStage& stage, const Tensor& packed) {
  const float* next = packed.data();
  for (const lab::Parameter& parameter : stage.named_parameters()) {
    const auto count = parameter.gradient.numel();
    std::copy_n(next, count, parameter.gradient.data());
    next += count;
  }
}

/// Gradients as a backward pass leaves them: with a tied head, its part is still apart. The stage
/// alone makes them, from what it has computed itself.
void make_gradients(LlamaStage& stage, const TokenBatch& batch) {
  stage.zero_gradients();
  const Tensor input = hidden_states(stage, batch);
  input.fill(0.5F);
  const Tensor output = stage.span().embeds ? stage.forward(batch) : stage.forward(input);
  stage.backward(output);
}

/// Task 4. What it refuses is noted; the next call comes all the same.
Parcel run_clip(const Parcel& input, ProcessGroup& world) {
  std::optional<ProcessGroup> part = part_of_world(input, world);
  ProcessGroup& pipeline = part ? *part : world;
  Passes passes(input);
  for (int k = 0; k < passes.count; ++k) {
    if (input.has(Passes::entry("gradients", k))) {
      set_gradients(passes.stage, input.tensor(Passes::entry("gradients", k)));
    } else {
      make_gradients(passes.stage, passes.batch(0));
      const Tensor made = lab::grading::packed(passes.stage, passes.stage.gradients());
      passes.result.set(Passes::entry("made", k), made);
      make_gradients(passes.stage, passes.batch(0));  // again: to look at them completes them
    }
    passes.run(k, pipeline, [&] {
      const double max_norm = input.number(Passes::entry("max_norm", k));
      passes.result.set_text(Passes::entry("refusal", k), lab::grading::refusal_of([&] {
                               passes.result.set(Passes::entry("norm", k),
                                                 clip_gradients(passes.stage, max_norm, pipeline));
                             }));
    });
  }
  return passes.result;
}

/// Task 5, a batch a step.
Parcel run_train_step(const Parcel& input, ProcessGroup& world) {
  std::optional<ProcessGroup> part = part_of_world(input, world);
  ProcessGroup& pipeline = part ? *part : world;
  const int rank = pipeline.rank();
  return lab::grading::record_steps(input, &pipeline, [&](const lab::grading::StepArguments& a) {
    const lab::LlamaConfig& config = a.stage.config();
    const auto loss = [&](const Tensor& logits, const TokenBatch& batch, int64_t targets) {
      lab::require(a.stage.span().has_head,
                   "loss was called on rank {}, which has no logits: only the last stage has the "
                   "head, and only it needs the targets",
                   rank);
      lab::require(
          logits.defined() && logits.shape() == Shape{batch.batch, batch.length, config.vocab_size},
          "loss was called on rank {} with a tensor that is not [B, T, V]: give it "
          "what forward returned",
          rank);
      step_state().logits = logits.clone();
      return a.loss(logits, batch, targets);
    };
    step_state() = {};
    return train_step(a.stage, a.optimizer, a.microbatches[0], loss, a.learning_rate, a.max_norm,
                      pipeline);
  });
}

}  // namespace
}  // namespace lab04

int main(int argc, char** argv) {
  return lab::grading::rank_main(argc, argv,
                                 {.alone = {{"splits", lab04::run_splits}},
                                  .group = {{"forward", lab04::run_forward},
                                            {"backward", lab04::run_backward},
                                            {"clip", lab04::run_clip},
                                            {"train_step", lab04::run_train_step}}});
}
