// Lab 05 · trains a LLaMA in a pipeline that works on several microbatches at once. This program is
// given; you write what it calls from microbatches.h.
//
// With --simulate it trains nothing and shows your schedule in simulated time. "Changed" marks the
// places of the training loop that differ from lab 04's.
#include <optional>
#include <vector>

#include "common/comm/agreement.h"
#include "common/data/sampler.h"
#include "common/model/llama_stage.h"
#include "common/pipeline/validate.h"
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
#include "labs/05_microbatches/main_simulation.h"
#include "labs/05_microbatches/microbatches.h"

namespace {

using namespace lab;

enum class Messages { kNone, kSafe, kBlocking };

/// The schedule that the plan asks for. Throws Error, before any training, if it cannot be run.
Schedule make_schedule(const RunPlan& plan, int stages, Messages messages) {
  Schedule schedule =
      choose_schedule(plan.schedule, stages, plan.microbatches, {lab05::gpipe, lab05::one_f_one_b});
  if (schedule.has_messages() || messages == Messages::kNone) return schedule;
  if (messages == Messages::kBlocking) return lab05::with_blocking_messages(schedule);
  schedule = lab05::with_messages(schedule);
  require_valid(schedule, "schedule " + plan.schedule + " with the messages of task 5");
  return schedule;
}

int train(Job& job, const RunPlan& plan, Messages messages) {
  ProcessGroup& pipeline = job.world();

  // The schedule. New: what every stage does in a wave, and in which order.
  const Schedule schedule = make_schedule(plan, pipeline.size(), messages);
  const Setup setup(job, plan);
  const TrainingFunctions functions = training_functions(setup.device);
  agree_on_schedule(job, schedule);

  // 1 · Input. As in lab 04: every rank reads the same microbatches.
  Sampler sampler(setup.sequences(), setup.seed);

  // 2 · Model. As in lab 04: this rank's part of it only.
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
    const std::vector<TokenBatch> microbatches = run.next_microbatches();

    // 4 · Gradients. Changed: accumulated over microbatches that are in flight at the same time.
    // 5 · Loss. As in lab 04: on the last rank.
    const int64_t begin_ns = monotonic_now_ns();
    const double own_loss = lab05::train_step(stage, recorded_optimizer, schedule, microbatches,
                                              loss, learning_rate.at(step), plan.clip, pipeline);
    last_step = {.begin_ns = begin_ns, .end_ns = monotonic_now_ns()};

    // 6 · Metrics. As in lab 04: every n steps rank 0 records the loss, which the last rank has.
    if (run.record_due(step)) run.record(step, from_last_stage(own_loss, pipeline));

    // 7 · Checkpoint. As in lab 04: each rank writes its stage, all or none.
    if (run.checkpoint_due(step)) run.save_checkpoint();
  }

  if (plan.timeline && last_step) show_timeline(job, stage, *last_step, schedule, run.folder());
  run.finish();
  run.tell_story();
  return run.exit_code();
}

int start(int argc, char** argv) {
  Messages messages = Messages::kNone;
  lab05::Simulation simulation;
  const auto add_options = [&](CommandLine& line) {
    line.group("Pipeline");
    line.add_choice<Messages>("--messages", messages,
                              {{"safe", Messages::kSafe}, {"blocking", Messages::kBlocking}},
                              "safe: those of task 5 (default); blocking: those of task 3")
        .carried();
    lab05::add_simulation_options(line, simulation);
  };
  const RunPlan plan = settle_plan(
      argc, argv,
      {.about = "Trains a LLaMA in a pipeline that works on several microbatches at once.",
       .run_name = "microbatches",
       .division = Division::kMicrobatches,
       .batch = 1,
       .log_every = 10,
       .add_options = add_options});
  if (simulation.wanted)
    return lab05::show(make_schedule(plan, stages_to_simulate(simulation, plan.schedule), messages),
                       plan.schedule, simulation);
  if (messages == Messages::kNone) messages = Messages::kSafe;
  return run_program(
      plan, argc, argv,
      [&](Job& job, const RunPlan& settled) { return train(job, settled, messages); },
      [&](const RunPlan& settled) {  // errors that every rank would report
        choose_stages(settled.model, settled.pp, settled.split, lab04::split);
        make_schedule(settled, settled.pp, messages);
      });
}

}  // namespace

int main(int argc, char** argv) { return lab::run_main(argc, argv, start); }
