// Lab 09 · trains a LLaMA whose weights, gradients and optimizer state are divided among the ranks.
// This program is given; you write what it calls from sharded.h.
//
// "Changed" marks the places of the training loop that differ from lab 02's. With --simulate it
// trains nothing, and shows a step in simulated time.
#include <fmt/format.h>

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "common/comm/agreement.h"
#include "common/data/sampler.h"
#include "common/error.h"
#include "common/model/llama_stage.h"
#include "common/run/options/main_guard.h"
#include "common/run/training/run_program.h"
#include "common/run/training/settle_plan.h"
#include "common/run/training/start_up.h"
#include "common/run/training/training_functions.h"
#include "common/run/training/training_run.h"
#include "common/run/training/validation.h"
#include "common/tensor/memory_account.h"
#include "labs/02_gradient_allreduce/gradient_allreduce.h"
#include "labs/09_sharded/main_checkpoint.h"
#include "labs/09_sharded/main_simulation.h"
#include "labs/09_sharded/sharded.h"

namespace {

using namespace lab;

int train(Job& job, const RunPlan& plan, int shard, MemoryAccount& memory) {
  ProcessGroup& world = job.world();
  const Setup setup(job, plan);
  const TrainingFunctions functions = training_functions(setup.device);

  // 1 · Input, as in lab 02.
  Sampler sampler(setup.sequences(), setup.seed, [&world](std::span<const int64_t> order) {
    return lab02::shard(order, world.rank(), world.size());
  });

  // 2 · Model. Changed: `sharded` holds the weights, and each part has its own optimizer.
  LlamaStage model(setup.model, StageSpan::whole(setup.model), setup.device, setup.seed,
                   shard > 0 ? WeightMemory::kBound : WeightMemory::kOwn);
  std::optional<lab09::Sharded> sharded;
  std::unique_ptr<Optimizer> optimizer;  // of all weights, without shards
  if (shard > 0) {
    sharded.emplace(lab09::make_sharded(model, world, shard, [&](int64_t size) {
      return make_optimizer(plan, size, setup.device, functions.adam);
    }));
    lab09::attach(*sharded);
  } else {
    optimizer = make_optimizer(plan, model, functions.adam);
  }

  // Changed: all ranks compute the same microbatches, since every pass may gather weights.
  const auto validate = [&] { return validation_loss(model, setup.data, plan, functions.loss); };
  TrainingParts parts{model,      shard > 0 ? *sharded->parts[0].optimizer : *optimizer,
                      sampler,    setup.tokenizer,
                      setup.data, validate};
  if (shard > 0) {
    parts.shards = [&] { return lab09::saved_shards(*sharded); };
    parts.load_shards = [&](const auto& checkpoint) { lab09::load_shards(*sharded, checkpoint); };
  }

  // 3 · Loop, as in lab 02.
  TrainingRun run(plan, parts, &job);
  if (shard > 0)  // after --resume
    for (const lab09::Part& part : sharded->parts)
      part.optimizer->set_steps(parts.optimizer.steps());
  const LearningRate learning_rate = plan.learning_rates();
  for (int64_t step = run.begin(); run.goes_on(step); ++step) {
    const std::vector<TokenBatch> microbatches = run.next_microbatches();
    const float rate = learning_rate.at(step);

    // 4 · Gradient aggregation. Changed: every rank gets its shards only, and updates them.
    // 5 · Loss. Changed: its part of the mean over the targets of all ranks.
    const double own_loss =
        shard > 0 ? lab09::train_step(*sharded, microbatches, functions.loss, rate, plan.clip)
                  : lab02::train_step(model, *optimizer, microbatches, functions.loss, rate,
                                      plan.clip, world);

    // 6 · Metrics. Changed: parts of a mean are added up.
    if (run.record_due(step))
      run.record(step, shard > 0
                           ? sum_over(world, own_loss)
                           : lab02::average_loss(own_loss, target_count(microbatches), world));
    // 7 · Checkpoint. Changed: every rank writes its shards.
    if (run.checkpoint_due(step)) run.save_checkpoint();
  }

  run.finish();
  run.tell_story();
  if (world.rank() == 0)
    fmt::print("memory      {:.1f} MB at the peak of a rank: {}\n",
               1e-6 * static_cast<double>(memory.peak()), in_words(memory.at_peak()));
  return run.exit_code();
}

int train_within(Job& job, const RunPlan& plan, const lab09::Options& options) {
  const auto memory = std::make_shared<MemoryAccount>();
  memory->set_limit(static_cast<int64_t>(1e6 * options.memory_limit_mb));
  const CountMemory counting(memory);
  try {
    return train(job, plan, options.shard, *memory);
  } catch (const OutOfMemory& error) {
    fail("{}; more ranks (--ranks), another stage (--shard) or fewer sequences (--batch) need less",
         error.what());
  }
}

int start(int argc, char** argv) {
  lab09::Options options;
  const RunPlan plan =
      settle_plan(argc, argv,
                  {.about = "Trains a LLaMA on several ranks, each of which keeps a shard of it.",
                   .run_name = "sharded",
                   .division = Division::kReplicas,
                   .batch = 1,
                   .log_every = 10,
                   .regroups = true,
                   .add_options = [&](CommandLine& line) { lab09::add_options(line, options); }});
  if (options.simulate) return lab09::show(options, plan.model, plan.accumulate);
  return run_program(plan, argc, argv, [&](Job& job, const RunPlan& settled) {
    return train_within(job, settled, options);
  });
}

}  // namespace

int main(int argc, char** argv) { return lab::run_main(argc, argv, start); }
