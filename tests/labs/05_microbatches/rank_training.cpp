// train_step, with all that it hands on on record.
#include <fmt/format.h>

#include <utility>

#include "common/tensor/todo.h"
#include "labs/01_single_gpu/single_gpu.h"
#include "labs/05_microbatches/microbatches.h"
#include "tests/labs/05_microbatches/rank_scenarios.h"
#include "tests/labs/05_microbatches/rank_stage.h"
#include "tests/labs/05_microbatches/tiny_pipeline.h"
#include "tests/labs/05_microbatches/wave_log.h"
#include "tests/labs/pipeline/packed.h"

namespace lab05 {
namespace {

using lab::ProcessGroup;
using lab::Tensor;
using lab::TokenBatch;
using lab::grading::Parcel;

/// Passes updates on, and keeps what came in.
class RecordingOptimizer final : public lab::Optimizer {
 public:
  explicit RecordingOptimizer(std::unique_ptr<lab::Optimizer> inner) : inner_(std::move(inner)) {}

  void step(const Tensor& parameters, const Tensor& gradients, float learning_rate) override {
    ++updates;
    last_gradients = gradients.clone();
    last_rate = learning_rate;
    inner_->step(parameters, gradients, learning_rate);
    steps_ = inner_->steps();
  }
  std::vector<State> state() const override { return inner_->state(); }

  int updates = 0;
  Tensor last_gradients;
  float last_rate = 0;

 private:
  std::unique_ptr<lab::Optimizer> inner_;
};

double recording_loss(const Tensor& logits, const TokenBatch& batch, int64_t total_targets) {
  step_log().totals.push_back(static_cast<double>(total_targets));
  return lab01::causal_lm_loss(logits, batch, total_targets);
}

/// What train_step takes.
struct Bench {
  Bench(const Parcel& input, ProcessGroup& world)
      : schedule(lab::schedule_from_text(input.text("schedule"), "schedule")),
        microbatches(microbatches_of(input)),
        stage(tiny_stage(world.rank(), world.size())),
        optimizer(make_optimizer(input.text("optimizer"), stage.parameters().numel())),
        rate(static_cast<float>(input.number("learning_rate"))),
        max_norm(input.number("max_norm")) {
    pipeline_tests::fill_gradients(stage, static_cast<float>(input.number("leftover")));
  }

  double step(ProcessGroup& world) {
    step_log() = {&schedule, microbatches, {}, {}};
    optimizer.updates = 0;
    return train_step(stage, optimizer, schedule, microbatches, recording_loss, rate, max_norm,
                      world);
  }

  lab::Schedule schedule;
  std::vector<TokenBatch> microbatches;
  lab::LlamaStage stage;
  RecordingOptimizer optimizer;
  float rate;
  double max_norm;
};

}  // namespace

Parcel run_train_step(const Parcel& input, ProcessGroup& world) {
  Bench bench(input, world);
  Parcel result;
  for (int step = 0; step < static_cast<int>(input.number("steps")); ++step) {
    const std::string suffix = std::to_string(step);
    result.set("loss" + suffix, bench.step(world));
    require_nothing_pending(world, "train_step");
    result.set("waves" + suffix, step_log().waves);
    result.set("totals" + suffix, step_log().totals);
    result.set("updates" + suffix, bench.optimizer.updates);
    if (bench.optimizer.updates > 0) {
      result.set("gradients" + suffix,
                 pipeline_tests::packed(bench.stage, bench.optimizer.last_gradients));
      result.set("rate" + suffix, bench.optimizer.last_rate);
    }
    result.set("weights" + suffix, pipeline_tests::packed(bench.stage, bench.stage.parameters()));
  }
  result.set("messages", messages_of(world));
  return result;
}

Parcel run_refusal(const Parcel& input, ProcessGroup& world) {
  Bench bench(input, world);
  const Tensor before = pipeline_tests::packed(bench.stage, bench.stage.parameters());
  Parcel result;
  result.set_text("error", "");
  try {
    bench.step(world);
  } catch (const lab::NotImplemented&) {
    throw;
  } catch (const lab::BrokenOff&) {
    throw;
  } catch (const lab::Error& error) {
    result.set_text("error", error.what());
  } catch (const Refused&) {  // by the given executor: too late, and no lab::Error
  }
  result.set("waves", static_cast<double>(step_log().waves.size()));
  result.set("updates", bench.optimizer.updates);
  return result;
}

}  // namespace lab05
