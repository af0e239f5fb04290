// Lab 10 · trains a LLaMA in three dimensions: pipelines, their stages, and slices of every layer.
// This program is given; you write what it calls from tensor_parallel.h.
//
// "Changed" marks the places of the training loop that differ from lab 06's. With --simulate it
// trains nothing, and shows a step in simulated time.
#include <fmt/format.h>

#include <optional>
#include <span>
#include <vector>

#include "common/data/sampler.h"
#include "common/error.h"
#include "common/model/llama_stage.h"
#include "common/run/options/main_guard.h"
#include "common/run/training/pipeline_setup.h"
#include "common/run/training/run_program.h"
#include "common/run/training/settle_plan.h"
#include "common/run/training/start_up.h"
#include "common/run/training/training_functions.h"
#include "common/run/training/training_run.h"
#include "common/run/training/validation.h"
#include "labs/04_pipeline_1f1b/pipeline_1f1b.h"
#include "labs/05_microbatches/microbatches.h"
#include "labs/06_hybrid_2x3/hybrid_2x3.h"
#include "labs/10_tensor_parallel/main_traffic.h"
#include "labs/10_tensor_parallel/passes.h"

namespace {

using namespace lab;

Schedule make_schedule(const RunPlan& plan) {
  const Schedule schedule = choose_schedule(plan.schedule, plan.pp, plan.microbatches,
                                            {lab05::gpipe, lab05::one_f_one_b});
  return schedule.has_messages() ? schedule : lab05::with_messages(schedule);
}

int train(Job& job, const RunPlan& plan) {
  const Schedule schedule = make_schedule(plan);
  const Setup setup(job, plan);
  const TrainingFunctions functions = training_functions(setup.device);
  agree_on_schedule(job, schedule);

  // The mesh. Changed: a third dimension. Lab 06 knows nothing of slices: for its functions, the
  // ranks with the same slice are a mesh of their own.
  lab10::Mesh mesh = lab10::make_mesh(job.world(), plan.dp, plan.pp, plan.tp);
  ProcessGroup same_slice = job.world().split(mesh.place.slice, job.world().rank(), "same slice");
  lab06::Mesh stages{.place = {.pipeline = mesh.place.pipeline, .stage = mesh.place.stage},
                     .pipeline = std::move(mesh.pipeline),
                     .replicas = std::move(mesh.replicas)};

  // 1 · Input. As in lab 06: the slices of a stage read the same.
  Sampler sampler(setup.sequences(), setup.seed, [&](std::span<const int64_t> order) {
    return lab06::shard(order, stages.place, plan.dp);
  });

  // 2 · Model. Changed: this rank's slice of its stage.
  const std::vector<StageSpan> spans =
      choose_stages(setup.model, plan.pp, plan.split, lab04::split);
  agree_on_stages(job, spans);
  LlamaStage stage = lab10::make_stage(setup.model, spans[static_cast<size_t>(mesh.place.stage)],
                                       mesh.slices, setup.seed);
  const auto optimizer = make_optimizer(plan, stage, functions.adam);

  // 5 · Loss. Changed: no rank has all logits of a position.
  const Range vocabulary = lab10::vocabulary_of(setup.model, mesh.slices);
  const LossFunction loss = [&](const Tensor& logits, const TokenBatch& batch, int64_t targets) {
    return lab10::causal_lm_loss(logits, batch, targets, vocabulary, mesh.slices);
  };
  const auto validate = [&] {
    const auto forward = [&](const TokenBatch& batch) {
      return lab04::forward(stage, batch, stages.pipeline);
    };
    return validation_loss(stage, setup.data, plan, loss,
                           {&stages.replicas, &stages.pipeline, forward});
  };
  std::optional<TimeWindow> last_step;

  // 3 · Loop. As in lab 02: all ranks leave it together.
  TrainingParts parts{stage, *optimizer, sampler, setup.tokenizer, setup.data, validate, spans};
  parts.slices = &mesh.slices;
  parts.same_slice = &same_slice;
  TrainingRun run(plan, parts, &job);
  const LearningRate learning_rate = plan.learning_rates();
  for (int64_t step = run.begin(); run.goes_on(step); ++step) {
    const std::vector<TokenBatch> microbatches = run.next_microbatches();

    // 4 · Gradients. As in lab 06: every rank has those of its own weights, and only its replicas
    // have the same. Changed: the norm is that of all stages and slices.
    const int64_t begin_ns = monotonic_now_ns();
    const double own_loss = lab06::compute_gradients(stage, schedule, microbatches, loss, stages);
    if (plan.clip > 0) lab10::clip_gradients(stage, plan.clip, mesh.model);
    optimizer->step(stage.parameters(), stage.gradients(), learning_rate.at(step));
    last_step = {.begin_ns = begin_ns, .end_ns = monotonic_now_ns()};

    // 6 · Metrics. As in lab 06.
    if (run.record_due(step)) run.record(step, lab06::mean_loss(own_loss, stages));

    // 7 · Checkpoint. Changed: the first slice of each stage gathers the others', and writes.
    if (run.checkpoint_due(step)) run.save_checkpoint();
  }

  run.finish();
  if (last_step && job.world().rank() == 0)
    lab10::print_traffic(job.world().recorder(), *last_step);
  run.tell_story();
  return run.exit_code();
}

/// Reports once, before any rank starts, the errors that every rank would report.
void check(const RunPlan& plan) {
  choose_stages(plan.model, plan.pp, plan.split, lab04::split);
  slice_config(plan.model, {.rank = 0, .ranks = plan.tp});
  make_schedule(plan);
}

int start(int argc, char** argv) {
  lab10::Simulation simulation;
  const RunPlan plan = settle_plan(
      argc, argv,
      {.about = "Trains a LLaMA on several ranks that divide every layer among them.",
       .run_name = "slices",
       .division = Division::kSlices,
       .batch = 3,
       .log_every = 10,
       .add_options = [&](CommandLine& line) { lab10::add_options(line, simulation); }});
  if (simulation.wanted) return lab10::show(simulation, plan);
  require(plan.device == "cpu", "--device {}: slices of layers are computed on the CPU",
          plan.device);
  return run_program(plan, argc, argv, train, check);
}

}  // namespace

int main(int argc, char** argv) { return lab::run_main(argc, argv, start); }
