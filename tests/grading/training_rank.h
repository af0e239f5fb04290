// Training steps in a rank program: taken by the implementation, and recorded.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "common/comm/process_group.h"
#include "common/model/llama_stage.h"
#include "common/model/loss_function.h"
#include "common/optim/optimizer.h"
#include "tests/grading/parcel.h"

namespace lab::grading {

/// What a training step is given. `loss` records its calls, and is another function in each step.
struct StepArguments {
  LlamaStage& stage;
  Optimizer& optimizer;
  std::span<const TokenBatch> microbatches;
  const LossFunction& loss;
  float learning_rate;
  double max_norm;
  int64_t step;  // from 1
};

/// Takes the steps of a TrainingCase with `take_step`, which returns the loss, and records each:
/// for step S "loss.S"; "totals.S", the `total_targets` of every call of the loss; "events.S";
/// "updates.S"; of the first update "gradients.S" (packed) and "rate.S"; the weights right after
/// the last update, "updated.S", and at the end of the step, "weights.S"; on a network also the
/// part "traffic.S" with the operations of this step. Also "start", the initial weights;
/// "in_flight.S", the bytes of activations that are left; and "optimizer_steps.S", the optimizer's
/// count of updates. With kRecordLogits in the input, also "logits.S.K": what loss was given for
/// microbatch K.
inline constexpr const char* kRecordLogits = "record_logits";
Parcel record_steps(const Parcel& input, ProcessGroup* world,
                    const std::function<double(const StepArguments&)>& take_step);

/// Adds a word to "events.S": what a function of the rank program was called for. Does nothing
/// outside of a step.
void record_event(const std::string& name);

/// The model and the part of it that a rank holds.
LlamaConfig model_of(const Parcel& input);
StageSpan span_of(const Parcel& input);

/// The weights or gradients of a stage as one tensor without gaps; `flat` is laid out as
/// stage.parameters(). Those of all stages, one after the other, are those of the whole model.
Tensor packed(const LlamaStage& stage, const Tensor& flat);

/// The passes of a step whose microbatches come one after the other.
class Passes {
 public:
  /// For an observer (LlamaStage::observe_passes): throws Error if a forward pass begins while
  /// another microbatch is in flight.
  void note(const LlamaStage& stage, LlamaStage::Pass pass, bool begins);
  int64_t backward() const { return backward_; }
  /// After the step: throws Error if a microbatch has been discarded.
  void expect_all_backward() const;

 private:
  int64_t forward_ = 0;
  int64_t backward_ = 0;
};

/// Sets every gradient, but not the gaps between them.
void fill_gradients(const LlamaStage& stage, float value);

}  // namespace lab::grading
