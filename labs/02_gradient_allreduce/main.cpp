// Lab 02 · trains a LLaMA on several ranks, each with the whole model and a shard of the data. This
// program is given; what it calls from gradient_allreduce.h is yours.
//
// The seven cutpoints of lab 01's training loop again. "Changed" marks those where several ranks
// make a difference.
#include <span>
#include <vector>

#include "common/data/sampler.h"
#include "common/model/llama_stage.h"
#include "common/run/options/main_guard.h"
#include "common/run/training/run_program.h"
#include "common/run/training/settle_plan.h"
#include "common/run/training/start_up.h"
#include "common/run/training/training_functions.h"
#include "common/run/training/training_run.h"
#include "common/run/training/validation.h"
#include "labs/02_gradient_allreduce/gradient_allreduce.h"

namespace {

using namespace lab;

int train(Job& job, const RunPlan& plan) {
  ProcessGroup& world = job.world();
  const Setup setup(job, plan);
  const TrainingFunctions functions = training_functions(setup.device);

  // 1 · Input. Changed: all ranks know the order of the epoch, and each reads its shard of it.
  Sampler sampler(setup.sequences(), setup.seed, [&world](std::span<const int64_t> order) {
    return lab02::shard(order, world.rank(), world.size());
  });

  // 2 · Model. Changed: all ranks start from rank 0's weights. Each first draws different ones, so
  // that a missing broadcast shows.
  LlamaStage model(setup.model, StageSpan::whole(setup.model), setup.device,
                   setup.seed + static_cast<uint64_t>(world.rank()));
  lab02::broadcast_parameters(model, world);
  const auto optimizer = make_optimizer(plan, model, functions.adam);
  const auto validate = [&] {
    return validation_loss(model, setup.data, plan, functions.loss, {.replicas = &world});
  };

  // 3 · Loop. Changed: all ranks leave it together. The others would wait for one that left early.
  TrainingRun run(plan, {model, *optimizer, sampler, setup.tokenizer, setup.data, validate}, &job);
  const LearningRate learning_rate = plan.learning_rates();
  for (int64_t step = run.begin(); run.goes_on(step); ++step) {
    const std::vector<TokenBatch> microbatches = run.next_microbatches();

    // 4 · Gradient aggregation. Changed: over the microbatches of all ranks.
    // 5 · Loss. As before: each rank computes that of its own microbatches.
    const double own_loss = lab02::train_step(model, *optimizer, microbatches, functions.loss,
                                              learning_rate.at(step), plan.clip, world);

    // 6 · Metrics. Changed: a mean over all ranks, every n steps; rank 0 records it.
    if (run.record_due(step))
      run.record(step, lab02::average_loss(own_loss, target_count(microbatches), world));

    // 7 · Checkpoint. Changed: only rank 0 writes it. The others hold the same weights and the same
    // state of Adam, and their samplers are at the same position of their shards.
    if (run.checkpoint_due(step)) run.save_checkpoint();
  }

  run.finish();
  run.tell_story();
  return run.exit_code();
}

int start(int argc, char** argv) {
  const RunPlan plan = settle_plan(
      argc, argv,
      {.about = "Trains a LLaMA on several ranks, which average their gradients in every step.",
       .run_name = "allreduce",
       .division = Division::kReplicas,
       .batch = 1,  // a sequence for each rank
       .log_every = 10});
  return run_program(plan, argc, argv, train);
}

}  // namespace

int main(int argc, char** argv) { return lab::run_main(argc, argv, start); }
