// Calling training steps, with all that they touch on record.
#include "tests/grading/training_rank.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <optional>
#include <utility>

#include "common/error.h"
#include "common/format.h"
#include "tests/grading/operations.h"
#include "tests/grading/reference.h"
#include "tests/grading/training_case.h"

namespace lab::grading {
namespace {

struct StepLog {
  int64_t number = 0;  // of the step, among all of this rank
  std::string events = {};
  std::vector<double> totals = {};
  double loss_factor = 1;
  bool has_nan_loss = false;
  std::span<const TokenBatch> microbatches = {};  // whose logits are recorded
  std::vector<Tensor> logits = {};                // of each; undefined: loss was not called
};

/// Of this rank: simulated ranks are threads.
StepLog& step_log() {
  thread_local StepLog log;
  return log;
}

/// The loss that step `number` is given.
double recorded_loss(int64_t number, const Tensor& logits, const TokenBatch& batch,
                     int64_t total_targets) {
  StepLog& log = step_log();
  require(number == log.number,
          "a step calls the loss function that an earlier step was given: each gets its own, and "
          "nothing is kept between calls");
  record_event("loss");
  log.totals.push_back(static_cast<double>(total_targets));
  const auto found = std::ranges::find(log.microbatches, batch.tokens, &TokenBatch::tokens);
  if (found != log.microbatches.end())
    log.logits[static_cast<size_t>(found - log.microbatches.begin())] = logits.clone();
  const double loss = scaled_reference_loss(logits, batch, total_targets, log.loss_factor);
  const bool is_nan = log.has_nan_loss && batch.target_count() > 0;
  return is_nan ? std::numeric_limits<double>::quiet_NaN() : loss;
}

/// Passes updates on, and keeps what came in.
class RecordingOptimizer final : public Optimizer {
 public:
  explicit RecordingOptimizer(std::unique_ptr<Optimizer> inner) : inner_(std::move(inner)) {}

  void step(const Tensor& parameters, const Tensor& gradients, float learning_rate) override {
    record_event("update");
    if (updates_++ == 0) {
      gradients_ = gradients.clone();
      learning_rate_ = learning_rate;
    }
    inner_->set_steps(steps_);  // which may have been set from outside
    inner_->step(parameters, gradients, learning_rate);
    updated_ = parameters.clone();
    steps_ = inner_->steps();
  }
  std::vector<State> state() const override { return inner_->state(); }

  void begin_step() { updates_ = 0; }
  /// Of the step; `packed` as the weights are laid out.
  void write(const LlamaStage& stage, int step, Parcel& result) const {
    result.set(fmt::format("updates.{}", step), updates_);
    if (updates_ == 0) return;
    result.set(fmt::format("gradients.{}", step), packed(stage, gradients_));
    result.set(fmt::format("rate.{}", step), double{learning_rate_});
    result.set(fmt::format("updated.{}", step), packed(stage, updated_));
  }

 private:
  std::unique_ptr<Optimizer> inner_;
  int updates_ = 0;
  Tensor gradients_;
  float learning_rate_ = 0;
  Tensor updated_;
};

}  // namespace

void record_event(const std::string& name) {
  std::string& events = step_log().events;
  events += (events.empty() ? "" : " ") + name;
}

LlamaConfig model_of(const Parcel& input) {
  const std::vector<double> sizes = input.numbers("model");
  const auto size = [&](size_t i) { return static_cast<int64_t>(sizes.at(i)); };
  return {.vocab_size = size(0),
          .dim = size(1),
          .heads = size(2),
          .kv_heads = size(3),
          .layers = size(4),
          .hidden_dim = size(5),
          .context = size(6),
          .init_std = static_cast<float>(sizes.at(7)),
          .tied_head = sizes.at(8) != 0};
}

StageSpan span_of(const Parcel& input) {
  const std::vector<double> span = input.numbers("span");
  return {static_cast<int64_t>(span.at(0)), static_cast<int64_t>(span.at(1)), span.at(2) != 0,
          span.at(3) != 0};
}

Tensor packed(const LlamaStage& stage, const Tensor& flat) {
  const Tensor result = Tensor::empty({stage.parameter_count()});
  if (flat.numel() != stage.parameters().numel()) return flat.clone();  // to be found wrong
  float* next = result.data();
  for (const Parameter& parameter : stage.named_parameters()) {
    const int64_t begin = parameter.value.data() - stage.parameters().data();
    next = std::copy_n(flat.data() + begin, parameter.value.numel(), next);
  }
  return result;
}

void Passes::note(const LlamaStage& stage, LlamaStage::Pass pass, bool begins) {
  if (!begins) return;
  ++(pass == LlamaStage::Pass::kForward ? forward_ : backward_);
  require(pass != LlamaStage::Pass::kForward || stage.activation_bytes() == 0,
          "a forward pass begins while another microbatch still waits for its backward pass: the "
          "activations of both are in memory");
}

void Passes::expect_all_backward() const {
  require(forward_ == backward_,
          "{}, but {}: every microbatch needs a backward pass, even without targets",
          counted(forward_, "forward pass"), counted(backward_, "backward pass"));
}

void fill_gradients(const LlamaStage& stage, float value) {
  for (const Parameter& parameter : stage.named_parameters()) parameter.gradient.fill(value);
}

Parcel record_steps(const Parcel& input, ProcessGroup* world,
                    const std::function<double(const StepArguments&)>& take_step) {
  LlamaStage stage(model_of(input), span_of(input), Device::kCpu,
                   static_cast<uint64_t>(input.number("seed")));
  RecordingOptimizer optimizer(
      reference_optimizer(input.text("optimizer"), stage.parameters().numel()));
  const float leftover = overflowed(static_cast<float>(input.number("leftover")));
  Parcel result;
  result.set("start", packed(stage, stage.parameters()));
  for (int step = 0; step < static_cast<int>(input.number("steps")); ++step) {
    const auto entry = [&](const char* name) { return fmt::format("{}.{}", name, step); };
    std::vector<TokenBatch> microbatches;
    for (int k = 0; k < static_cast<int>(input.number(entry("microbatches"))); ++k)
      microbatches.push_back(input.batch(fmt::format("microbatch.{}.{}", step, k)));
    if (leftover != 0) fill_gradients(stage, leftover);
    const int64_t number = step_log().number + 1;
    step_log() = {.number = number,
                  .loss_factor = input.number("loss_factor"),
                  .has_nan_loss = input.has(entry("nan_loss"))};
    const LossFunction loss = [number](const Tensor& logits, const TokenBatch& batch,
                                       int64_t total_targets) {
      return recorded_loss(number, logits, batch, total_targets);
    };
    if (input.has(kRecordLogits)) {
      step_log().microbatches = microbatches;
      step_log().logits.resize(microbatches.size());
    }
    optimizer.begin_step();
    const uint64_t last = world != nullptr ? last_operation(world->recorder()) : 0;
    result.set(entry("loss"), take_step({stage, optimizer, microbatches, loss,
                                         static_cast<float>(input.number(entry("learning_rate"))),
                                         input.number("max_norm"), step + 1}));
    Parcel traffic;
    if (world != nullptr) note_operations(world->recorder(), last, traffic);
    result.set(entry("traffic"), traffic);
    for (size_t k = 0; k < step_log().logits.size(); ++k)
      if (step_log().logits[k].defined())
        result.set(fmt::format("logits.{}.{}", step, k), step_log().logits[k]);
    result.set(entry("totals"), step_log().totals);
    result.set_text(entry("events"), step_log().events);
    optimizer.write(stage, step, result);
    result.set(entry("weights"), packed(stage, stage.parameters()));
    result.set(entry("optimizer_steps"), static_cast<double>(optimizer.steps()));
    result.set(entry("in_flight"), static_cast<double>(stage.activation_bytes()));
  }
  return result;
}

}  // namespace lab::grading
