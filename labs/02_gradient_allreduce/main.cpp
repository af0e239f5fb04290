// Lab 02 · trains a LLaMA on several ranks, each with the whole model and a shard of the data. This
// program is given; what it calls from gradient_allreduce.h is yours.
//
// The seven cutpoints of lab 01's training loop again. "Changed" marks those where several ranks
// make a difference.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <string_view>
#include <vector>

#include "common/comm/agreement.h"
#include "common/comm/process_group.h"
#include "common/data/sampler.h"
#include "common/data/token_dataset.h"
#include "common/data/tokenizer.h"
#include "common/model/llama_stage.h"
#include "common/run/launch/job.h"
#include "common/run/launch/launcher.h"
#include "common/run/options/main_guard.h"
#include "common/run/options/options.h"
#include "common/run/rendezvous/rank_environment.h"
#include "common/run/training/command_line.h"
#include "common/run/training/generate.h"
#include "common/run/training/start_up.h"
#include "common/run/training/training_run.h"
#include "common/run/training/validation.h"
#include "common/tensor/parallel.h"
#include "labs/01cuda_kernels/training_functions.h"
#include "labs/02_gradient_allreduce/gradient_allreduce.h"

namespace {

using namespace lab;

struct Options {
  TrainOptions train;
  LaunchOptions launch;
  int64_t log_every = 10;
};

Options read_options(int argc, char** argv) {
  Options options;
  const auto add_options = [&](CLI::App& app) {
    add_launch_options(app, options.launch);
    app.add_option("--log-every", options.log_every,
                   "steps from one loss to the next; each costs a message")
        ->type_name("N")
        ->capture_default_str()
        ->group("Run");
  };
  options.train = parse_train_options(
      argc, argv,
      {.about = "Trains a LLaMA on several ranks, which average their gradients in every step.",
       .run_name = "allreduce",
       .batch = 1,  // a sequence for each rank
       .add_options = add_options,
       .carried = {"--log-every"}});
  if (options.log_every < 1)
    throw UsageError(fmt::format("--log-every {}: it must be at least 1", options.log_every));
  return options;
}

int train(Job& job, const Options& all_options) {
  const TrainOptions& options = all_options.train;
  ProcessGroup& world = job.world();
  const bool first_rank = world.rank() == 0;
  const auto seed = static_cast<uint64_t>(options.seed);
  set_thread_count(options.threads);
  agree_on_options(job, options);
  const Device device = agree_on_device(job, options);
  const lab01cuda::TrainingFunctions functions = lab01cuda::training_functions(device);

  // 1 · Input. Changed: all ranks know the order of the epoch, and each reads its shard of it.
  const Tokenizer tokenizer(options.tokenizer);
  const TokenDataset data = open_data(job, tokenizer, options);
  const int64_t length = options.model.context;
  Sampler sampler(data.sequence_count(Split::kTrain, length), seed,
                  [&world](std::span<const int64_t> order) {
                    return lab02::shard(order, world.rank(), world.size());
                  });

  // 2 · Model. Changed: all ranks start from rank 0's weights. Each first draws different ones, so
  // that a missing broadcast shows.
  LlamaConfig config = options.model;
  config.vocab_size = tokenizer.vocab_size();
  LlamaStage model(config, StageSpan::whole(config), device,
                   seed + static_cast<uint64_t>(world.rank()));
  lab02::broadcast_parameters(model, world);
  const auto optimizer = make_optimizer(options, model, functions.adam);

  TrainingRun run(options, {model, *optimizer, sampler, tokenizer, data},
                  first_rank ? RunFiles::kWritten : RunFiles::kNone);
  if (first_rank) fmt::print("ranks   {}\n", world.size());
  job.agree("first step", fmt::format("{}", run.first_step()));
  const LearningRate learning_rate = options.learning_rates();
  if (run.first_step() == 1)
    run.record_start(validation_loss(model, data, options, functions.loss, world));

  // 3 · Loop. As before, but all ranks leave it together: the others would wait for one that left
  // early.
  Stopwatch stopwatch;
  int64_t steps_timed = 0;
  bool goes_on = all_true(world, run.goes_on(run.first_step()));
  for (int64_t step = run.first_step(); goes_on; ++step) {
    std::vector<TokenBatch> microbatches;
    for (int64_t i = 0; i < options.accumulate; ++i)
      microbatches.push_back(data.batch(Split::kTrain, sampler.next(options.batch), length));

    // 4 · Gradient aggregation. Changed: over the microbatches of all ranks.
    // 5 · Loss. As before: each rank computes that of its own microbatches.
    const double own_loss = lab02::train_step(model, *optimizer, microbatches, functions.loss,
                                              learning_rate.at(step), options.clip, world);
    goes_on = all_true(world, run.goes_on(step + 1));
    ++steps_timed;

    // 6 · Metrics. Changed: a mean over all ranks, every n steps; rank 0 records it.
    const bool saves = options.checkpoint_every > 0 && step % options.checkpoint_every == 0;
    if (step > 1 && step % all_options.log_every != 0 && goes_on && !saves &&
        !run.validation_due(step))
      continue;
    StepRecord record{.step = step, .learning_rate = learning_rate.at(step)};
    record.loss = lab02::average_loss(own_loss, target_count(microbatches), world);
    const auto tokens = static_cast<double>(options.accumulate * options.batch * length);
    record.tokens_per_second =
        tokens * static_cast<double>(world.size() * steps_timed) / stopwatch.seconds();
    if (run.validation_due(step))
      record.val_loss = validation_loss(model, data, options, functions.loss, world);
    run.record(record);

    // 7 · Checkpoint. Changed: only rank 0 writes it. The others hold the same weights and the same
    // state of Adam, and their samplers are at the same position of their shards.
    if (run.checkpoint_due(step)) run.save_checkpoint();
    stopwatch = {};
    steps_timed = 0;
  }

  const int exit_code = run.finish();
  if (exit_code == 0 && first_rank) print_story(model, tokenizer, options);
  return exit_code;
}

int start(int argc, char** argv) {
  Options options = read_options(argc, argv);
  if (is_launcher(options.launch)) return launch_ranks(options.launch, argc, argv);
  Job job(read_rank_environment(options.launch));
  options.train.ranks = job.world().size();
  return train(job, options);
}

}  // namespace

int main(int argc, char** argv) { return lab::run_main(argc, argv, start); }
