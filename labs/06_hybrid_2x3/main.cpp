// Lab 06 · trains a LLaMA on several pipelines and has it tell a story.
// This program is given; the functions it calls from hybrid_2x3.h are yours.
//
// "Changed" marks the places of the training loop that differ from lab 05's.
#include <optional>
#include <span>
#include <vector>

#include "common/data/sampler.h"
#include "common/model/llama_stage.h"
#include "common/run/options/main_guard.h"
#include "common/run/report/run_files.h"
#include "common/run/timeline/recorded_timeline.h"
#include "common/run/training/pipeline_setup.h"
#include "common/run/training/run_program.h"
#include "common/run/training/settle_plan.h"
#include "common/run/training/start_up.h"
#include "common/run/training/training_functions.h"
#include "common/run/training/training_run.h"
#include "common/run/training/validation.h"
#include "common/run/training/whose_labs.h"
#include "labs/04_pipeline_1f1b/pipeline_1f1b.h"
#include "labs/05_microbatches/microbatches.h"
#include "labs/06_hybrid_2x3/hybrid_2x3.h"

namespace {

using namespace lab;

/// One pipeline's program. Throws Error, before any training, for a schedule that cannot be run.
Schedule make_schedule(const RunPlan& plan) {
  const Schedule schedule = choose_schedule(plan.schedule, plan.pp, plan.microbatches,
                                            {lab05::gpipe, lab05::one_f_one_b});
  return schedule.has_messages() ? schedule : lab05::with_messages(schedule);
}

int train(Job& job, const RunPlan& plan) {
  // The mesh. New: this rank's place among pipelines and stages, and its two groups.
  const Schedule schedule = make_schedule(plan);
  const Setup setup(job, plan);
  const TrainingFunctions functions = training_functions(setup.device);
  agree_on_schedule(job, schedule);
  lab06::Mesh mesh = lab06::make_mesh(job.world(), plan.dp, plan.pp);

  // 1 · Input. Changed: every pipeline reads its own shard, by lab 02's rules.
  Sampler sampler(setup.sequences(), setup.seed, [&](std::span<const int64_t> order) {
    return lab06::shard(order, mesh.place, plan.dp);
  });

  // 2 · Model. As in labs 04 and 05: this rank's stage.
  const std::vector<StageSpan> spans =
      choose_stages(setup.model, plan.pp, plan.split, lab04::split);
  agree_on_stages(job, spans);
  LlamaStage stage(setup.model, spans[static_cast<size_t>(mesh.place.stage)], setup.device,
                   setup.seed);
  const auto optimizer = make_optimizer(plan, stage, functions.adam);
  const auto validate = [&] {
    const auto forward = [&](const TokenBatch& batch) {
      return lab04::forward(stage, batch, mesh.pipeline);
    };
    return validation_loss(stage, setup.data, plan, functions.loss,
                           {&mesh.replicas, &mesh.pipeline, forward});
  };

  // What every rank does is recorded, for the report.
  FlightRecorder& recorder = job.world().recorder();
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

    // 4 · Gradients. Changed: accumulated in each pipeline, then summed over the replicas of each
    // stage.
    // 5 · Loss. Changed: each pipeline's last stage has a part of it.
    const int64_t begin_ns = monotonic_now_ns();
    const double own_loss = lab06::train_step(stage, recorded_optimizer, schedule, microbatches,
                                              loss, learning_rate.at(step), plan.clip, mesh);
    last_step = {.begin_ns = begin_ns, .end_ns = monotonic_now_ns()};

    // 6 · Metrics. Changed: the mean over all pipelines, every n steps.
    if (run.record_due(step)) run.record(step, lab06::mean_loss(own_loss, mesh));

    // 7 · Checkpoint. Changed: every rank writes its part; all of them appear together, or none.
    if (run.checkpoint_due(step)) {
      run.save_checkpoint();
      if (job.world().rank() == 0) print_sample(run.folder(), step, setup.tokenizer, plan);
    }
  }

  run.finish();
  std::optional<StepTimeline> measured;  // on rank 0
  if (last_step) measured = measured_step(job, stage, *last_step, schedule);
  if (measured && plan.timeline) print_timeline(*measured, run.folder());
  if (job.world().rank() == 0)
    write_run_report(run.folder(), measured, {plan, setup.model, spans, kWhoseLabs});
  run.tell_story();
  return run.exit_code();
}

/// Reports once, before any rank starts, the errors that every rank would report.
void check(const RunPlan& plan) {
  choose_stages(plan.model, plan.pp, plan.split, lab04::split);
  make_schedule(plan);
}

int start(int argc, char** argv) {
  const RunPlan plan =
      settle_plan(argc, argv,
                  {.about = "Trains a LLaMA on several pipelines and has it tell a story.",
                   .run_name = "hybrid",
                   .division = Division::kMesh,
                   .batch = 1,
                   .steps = 350,
                   .checkpoint_every = 50,
                   .log_every = 10,
                   .restarts = true});
  return run_program(plan, argc, argv, train, check);
}

}  // namespace

int main(int argc, char** argv) { return lab::run_main(argc, argv, start); }
