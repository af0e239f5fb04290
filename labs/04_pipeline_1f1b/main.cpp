// Lab 04 · trains a LLaMA that is cut into stages, one on each rank. This program is given; what it
// calls from pipeline_1f1b.h is yours.
//
// The seven cutpoints of lab 01's training loop again. "Changed" marks those where a pipeline makes
// a difference.
#include <optional>
#include <vector>

#include "common/comm/agreement.h"
#include "common/data/sampler.h"
#include "common/model/llama_stage.h"
#include "common/run/options/main_guard.h"
#include "common/run/timeline/recorded_timeline.h"
#include "common/run/timeline/timeline_report.h"
#include "common/run/training/pipeline_setup.h"
#include "common/run/training/run_program.h"
#include "common/run/training/settle_plan.h"
#include "common/run/training/start_up.h"
#include "common/run/training/training_functions.h"
#include "common/run/training/training_run.h"
#include "common/run/training/validation.h"
#include "labs/04_pipeline_1f1b/pipeline_1f1b.h"

namespace {

using namespace lab;

/// The schedule of a step: one forward, one backward on every stage.
Schedule one_forward_one_backward(int stages) {
  return {
      .microbatches = 1,
      .stages = std::vector<ActionList>(static_cast<size_t>(stages),
                                        {{ActionKind::kForward, 0}, {ActionKind::kBackward, 0}})};
}

int train(Job& job, const RunPlan& plan) {
  ProcessGroup& pipeline = job.world();
  const Setup setup(job, plan);
  const TrainingFunctions functions = training_functions(setup.device);

  // 1 · Input. Changed: every rank reads the same batches. The first stage needs the tokens, the
  // last one the targets.
  Sampler sampler(setup.sequences(), setup.seed);

  // 2 · Model. Changed: only this rank's part of it.
  const std::vector<StageSpan> spans =
      choose_stages(setup.model, pipeline.size(), plan.split, lab04::split);
  agree_on_stages(job, spans);
  LlamaStage stage(setup.model, spans[static_cast<size_t>(pipeline.rank())], setup.device,
                   setup.seed);
  const auto optimizer = make_optimizer(plan, stage, functions.adam);
  const auto validate = [&] {
    const auto forward = [&](const TokenBatch& batch) {
      return lab04::forward(stage, batch, pipeline);
    };
    return validation_loss(stage, setup.data, plan, functions.loss,
                           {.pipeline = &pipeline, .forward = forward});
  };

  // What every rank does is recorded, for --timeline.
  FlightRecorder& recorder = pipeline.recorder();
  record_passes(stage, recorder);
  const auto loss = recorded_loss(functions.loss, recorder);
  RecordedOptimizer recorded_optimizer(*optimizer, recorder);
  std::optional<TimeWindow> last_step;

  // 3 · Loop. As in lab 02: all ranks leave it together.
  TrainingRun run(plan, {stage, *optimizer, sampler, setup.tokenizer, setup.data, validate, spans},
                  &job);
  const LearningRate learning_rate = plan.learning_rates();
  for (int64_t step = run.begin(); run.goes_on(step); ++step) {
    const TokenBatch batch = run.next_microbatches().front();  // there is only one

    // 4 · Gradients. Changed: each rank has those of its own layers, and nothing is averaged.
    // 5 · Loss. Changed: only on the last rank.
    const int64_t begin_ns = monotonic_now_ns();
    const double own_loss = lab04::train_step(stage, recorded_optimizer, batch, loss,
                                              learning_rate.at(step), plan.clip, pipeline);
    last_step = {.begin_ns = begin_ns, .end_ns = monotonic_now_ns()};

    // 6 · Metrics. Changed: rank 0 records the loss of the last rank, every n steps.
    if (run.record_due(step)) run.record(step, from_last_stage(own_loss, pipeline));

    // 7 · Checkpoint. Changed: each rank writes its stage; either all succeed or none counts.
    if (run.checkpoint_due(step)) run.save_checkpoint();
  }

  if (plan.timeline && last_step)
    show_timeline(job, stage, *last_step, one_forward_one_backward(pipeline.size()), run.folder());
  run.finish();
  run.tell_story();
  return run.exit_code();
}

/// Reports once, before any rank starts, the errors that every rank would report.
void check(const RunPlan& plan) { choose_stages(plan.model, plan.pp, plan.split, lab04::split); }

int start(int argc, char** argv) {
  const RunPlan plan = settle_plan(
      argc, argv,
      {.about = "Trains a LLaMA that is cut over several ranks: one forward, one backward pass.",
       .run_name = "pipeline",
       .division = Division::kStages,
       .log_every = 10});
  return run_program(plan, argc, argv, train, check);
}

}  // namespace

int main(int argc, char** argv) { return lab::run_main(argc, argv, start); }
