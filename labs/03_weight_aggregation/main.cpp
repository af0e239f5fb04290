// Lab 03 · trains a LLaMA on several ranks that average their weights every k steps. This program
// is given; what it calls from weight_aggregation.h is yours.
//
// It has the seven cutpoints of lab 01's training loop. "Changed" marks what differs from lab 02.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "common/comm/agreement.h"
#include "common/comm/process_group.h"
#include "common/data/sampler.h"
#include "common/data/sorted_shard.h"
#include "common/data/token_dataset.h"
#include "common/data/tokenizer.h"
#include "common/error.h"
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
#include "labs/03_weight_aggregation/weight_aggregation.h"

namespace {

using namespace lab;

struct Options {
  TrainOptions train;
  LaunchOptions launch;
  int64_t every = 8;
  std::string shards = "alike";
  bool drift = false;
};

/// The next multiple of `every`; 0 stays 0.
int64_t round_up(int64_t steps, int64_t every) { return (steps + every - 1) / every * every; }

Options read_options(int argc, char** argv) {
  Options options;
  const auto add_options = [&](CLI::App& app) {
    add_launch_options(app, options.launch);
    app.add_option("--every", options.every,
                   "steps from one average of the weights to the next (k)")
        ->type_name("K")
        ->check(CLI::Range(1, 1'000'000'000))
        ->capture_default_str()
        ->group("Run");
    app.add_option(
           "--shards", options.shards,
           "how sequences are dealt: alike, as in lab 02; or by-vocabulary, sorted, so that "
           "the ranks' data differ")
        ->check(CLI::IsMember({"alike", "by-vocabulary"}))
        ->capture_default_str()
        ->group("Data");
    app.add_flag("--drift", options.drift,
                 "measure in every step how far the replicas are apart; costs as much traffic as "
                 "an average in every step")
        ->group("Run");
  };
  TrainOptions& train = options.train;
  train = parse_train_options(
      argc, argv,
      {.about = "Trains a LLaMA on several ranks, which average their weights every k steps.",
       .run_name = "aggregation",
       .batch = 1,  // a sequence for each rank
       .add_options = add_options,
       .kept = {"--every", "--shards"}});
  // There is one model to validate or save only right after an average.
  train.validate_every = round_up(train.validate_every, options.every);
  train.checkpoint_every = round_up(train.checkpoint_every, options.every);
  return options;
}

/// Bytes that this rank has passed to all_reduce so far.
uint64_t bytes_sent(const ProcessGroup& world) {
  return world.recorder().snapshot().traffic[static_cast<size_t>(OpKind::kAllReduce)].bytes;
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
  job.agree("every", fmt::format("{}", all_options.every));
  job.agree("shards", all_options.shards);
  job.agree("drift", all_options.drift ? "yes" : "no");

  // 1 · Input. As in lab 02: each rank reads its own shard. It may be unlike the others'.
  const Tokenizer tokenizer(options.tokenizer);
  const TokenDataset data = open_data(job, tokenizer, options);
  const int64_t length = options.model.context;
  const int64_t sequences = data.sequence_count(Split::kTrain, length);
  const Shard alike = [&world](std::span<const int64_t> order) {
    return lab02::shard(order, world.rank(), world.size());
  };
  const Shard shard = all_options.shards == "alike"
                          ? alike
                          : sorted_shard(mean_tokens(data, length), world.rank(), world.size());
  Sampler sampler(sequences, seed, shard);

  // 2 · Model. As in lab 02, all ranks start from the same weights; then the replicas part.
  LlamaConfig config = options.model;
  config.vocab_size = tokenizer.vocab_size();
  LlamaStage model(config, StageSpan::whole(config), device,
                   seed + static_cast<uint64_t>(world.rank()));
  lab02::broadcast_parameters(model, world);
  const auto optimizer = make_optimizer(options, model, functions.adam);
  const size_t sequences_here = shard(epoch_order(sequences, seed, 0)).size();
  const double share = lab03::share_of(static_cast<double>(sequences_here), world);

  TrainingRun run(options, {model, *optimizer, sampler, tokenizer, data},
                  first_rank ? RunFiles::kWritten : RunFiles::kNone);
  job.agree("first step", fmt::format("{}", run.first_step()));
  const int64_t first_step = run.first_step();
  const LearningRate learning_rate = options.learning_rates();
  if (first_step == 1)
    run.record_start(validation_loss(model, data, options, functions.loss, world));
  std::ofstream drifts;
  if (all_options.drift && first_rank) drifts.open(run.folder() / "drift.tsv", std::ios::app);

  // 3 · Loop. Changed: between two averages no rank waits for any other. The ranks agree on whether
  // to go on only after an average, so that is where Ctrl-C takes effect.
  Stopwatch stopwatch;
  double round_loss = 0.0;  // sum over this rank's targets since the last average
  int64_t round_targets = 0;
  int64_t round_steps = 0;
  uint64_t sent = 0;
  bool goes_on = all_true(world, run.goes_on(first_step));
  for (int64_t step = first_step; goes_on && step <= options.steps; ++step) {
    std::vector<TokenBatch> microbatches;
    for (int64_t i = 0; i < options.accumulate; ++i)
      microbatches.push_back(data.batch(Split::kTrain, sampler.next(options.batch), length));

    // 4 · Aggregation. Changed: of the weights, every k steps and at the end of the run.
    // 5 · Loss. As before: each rank's own, over its own microbatches.
    const lab03::Aggregation aggregation{.every = step == options.steps ? 1 : all_options.every,
                                         .share = share};
    const uint64_t sent_before = bytes_sent(world);
    const double own_loss =
        lab03::train_step(model, *optimizer, microbatches, functions.loss, learning_rate.at(step),
                          options.clip, step, aggregation, world);
    sent += bytes_sent(world) - sent_before;
    round_loss += own_loss * static_cast<double>(target_count(microbatches));
    round_targets += target_count(microbatches);
    ++round_steps;
    if (all_options.drift) {
      const double apart = lab03::drift(model.parameters(), share, world);
      if (first_rank) drifts << fmt::format("{}\t{:.6g}\n", step, apart) << std::flush;
      require(drifts.good(), "cannot write drift.tsv in {}", run.folder().string());
    }
    if (!lab03::aggregation_due(step, aggregation.every)) continue;
    goes_on = all_true(world, run.goes_on(step + 1));

    // 6 · Metrics. Changed: once a round, over all its steps and all ranks. Now all replicas are
    // equal, so there is one model to validate.
    StepRecord record{.step = step, .learning_rate = learning_rate.at(step)};
    record.loss = lab02::average_loss(
        round_targets > 0 ? round_loss / static_cast<double>(round_targets) : 0.0, round_targets,
        world);
    const auto tokens = static_cast<double>(options.accumulate * options.batch * length);
    record.tokens_per_second =
        tokens * static_cast<double>(world.size() * round_steps) / stopwatch.seconds();
    if (run.validation_due(step))
      record.val_loss = validation_loss(model, data, options, functions.loss, world);
    run.record(record);

    // 7 · Checkpoint. Changed: it holds the averaged weights, but only rank 0's moments. A resumed
    // run gives these to all ranks, so it continues almost, not exactly, as if never stopped.
    if (run.checkpoint_due(step)) run.save_checkpoint();
    stopwatch = {};
    round_loss = 0.0;
    round_targets = round_steps = 0;
  }

  const int exit_code = run.finish();
  if (exit_code == 0 && first_rank) {
    fmt::print(
        "averages    {:.1f} MB per step put into all_reduce by each rank\n",
        static_cast<double>(sent) / 1e6 / static_cast<double>(options.steps + 1 - first_step));
    if (all_options.drift) fmt::print("drift       {}/drift.tsv\n", run.folder().string());
    print_story(model, tokenizer, options);
  }
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
