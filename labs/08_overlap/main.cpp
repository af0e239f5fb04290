// Lab 08 · trains a LLaMA on several ranks whose gradients travel while the backward pass goes on.
// This program is given; you write what it calls from overlap.h.
//
// "Changed" marks the places of the training loop that differ from lab 02's. With --simulate it
// trains nothing, and shows a step in simulated time.
#include <optional>
#include <span>
#include <vector>

#include "common/data/sampler.h"
#include "common/model/llama_stage.h"
#include "common/run/options/main_guard.h"
#include "common/run/timeline/network_report.h"
#include "common/run/timeline/recorded_timeline.h"
#include "common/run/training/run_program.h"
#include "common/run/training/settle_plan.h"
#include "common/run/training/start_up.h"
#include "common/run/training/training_functions.h"
#include "common/run/training/training_run.h"
#include "common/run/training/validation.h"
#include "labs/02_gradient_allreduce/gradient_allreduce.h"
#include "labs/08_overlap/main_simulation.h"
#include "labs/08_overlap/overlap.h"

namespace {

using namespace lab;

int train(Job& job, const RunPlan& plan, const lab08::Capacities& capacities, bool timeline) {
  ProcessGroup& world = job.world();
  const Setup setup(job, plan);
  const TrainingFunctions functions = training_functions(setup.device);

  // 1 · Input and 2 · model, as in lab 02.
  Sampler sampler(setup.sequences(), setup.seed, [&world](std::span<const int64_t> order) {
    return lab02::shard(order, world.rank(), world.size());
  });
  LlamaStage model(setup.model, StageSpan::whole(setup.model), setup.device,
                   setup.seed + static_cast<uint64_t>(world.rank()));
  lab02::broadcast_parameters(model, world);
  const auto optimizer = make_optimizer(plan, model, functions.adam);
  const auto validate = [&] {
    return validation_loss(model, setup.data, plan, functions.loss, {.replicas = &world});
  };

  // New: the same buckets on every rank, and what every rank does is recorded.
  lab08::Reducer reducer =
      lab08::make_reducer(model, capacities.cap_bytes(), capacities.first_cap_bytes(), world);
  FlightRecorder& recorder = world.recorder();
  record_passes(model, recorder);
  const auto loss = recorded_loss(functions.loss, recorder);
  RecordedOptimizer recorded_optimizer(*optimizer, recorder);
  std::optional<TimeWindow> last_step;

  // 3 · Loop. As in lab 02: all ranks leave it together.
  TrainingRun run(plan, {model, *optimizer, sampler, setup.tokenizer, setup.data, validate}, &job);
  const LearningRate learning_rate = plan.learning_rates();
  for (int64_t step = run.begin(); run.goes_on(step); ++step) {
    const std::vector<TokenBatch> microbatches = run.next_microbatches();

    // 4 · Gradient aggregation. Changed: during the last backward pass, bucket by bucket.
    // 5 · Loss. As in lab 02: each rank computes that of its own microbatches.
    const int64_t begin_ns = monotonic_now_ns();
    const double own_loss = lab08::train_step(model, recorded_optimizer, microbatches, loss,
                                              learning_rate.at(step), plan.clip, reducer);
    last_step = {.begin_ns = begin_ns, .end_ns = monotonic_now_ns()};

    // 6 · Metrics and 7 · checkpoint, as in lab 02.
    if (run.record_due(step))
      run.record(step, lab02::average_loss(own_loss, target_count(microbatches), world));
    if (run.checkpoint_due(step)) run.save_checkpoint();
  }

  if (timeline && last_step) show_network_timeline(job, *last_step, run.folder());
  run.finish();
  run.tell_story();
  return run.exit_code();
}

int start(int argc, char** argv) {
  lab08::Capacities capacities;
  bool timeline = false;
  lab08::Simulation simulation;
  const RunPlan plan = settle_plan(
      argc, argv,
      {.about = "Trains a LLaMA on several ranks; gradients travel during the backward pass.",
       .run_name = "overlap",
       .division = Division::kReplicas,
       .batch = 1,
       .log_every = 10,
       .add_options = [&](CommandLine& line) {
         lab08::add_options(line, capacities, timeline, simulation);
       }});
  if (simulation.wanted) return lab08::show(simulation, capacities, plan.model);
  return run_program(plan, argc, argv, [&](Job& job, const RunPlan& settled) {
    return train(job, settled, capacities, timeline);
  });
}

}  // namespace

int main(int argc, char** argv) { return lab::run_main(argc, argv, start); }
