// bench_ranks: data-parallel training (lab 02's solution) against one process on all cores with the
// same global batch, in turns in the same run: tokens per second, and the share of communication.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <thread>
#include <vector>

#include "common/error.h"
#include "common/model/llama_stage.h"
#include "common/optim/optimizer.h"
#include "common/run/launch/job.h"
#include "common/run/launch/launcher.h"
#include "common/run/options/command_line.h"
#include "common/run/options/main_guard.h"
#include "common/tensor/parallel.h"
#include "labs/01_single_gpu/single_gpu.h"
#include "labs/02_gradient_allreduce/gradient_allreduce.h"
#include "tests/bench/all_reduce_time.h"
#include "tests/bench/matmul_rate.h"
#include "tests/bench/random_batches.h"

namespace lab::bench {
namespace {

struct Options {
  LaunchOptions launch;
  int64_t vocab = 4096;
  int64_t batch = 1;  // sequences per microbatch and rank
  int64_t accumulate = 4;
  int rounds = 5;
  int steps = 3;  // per round
};

int run(int argc, char** argv) {
  Options options;
  CommandLine app("Times data-parallel training against one process on all cores.");
  add_launch_options(app, options.launch);
  app.add("--vocab", options.vocab, "", "Vocabulary size").shows_default();
  app.add("--batch", options.batch, "", "Sequences per microbatch and rank").shows_default();
  app.add("--accumulate", options.accumulate, "", "Microbatches per step").shows_default();
  app.add("--rounds", options.rounds, "", "Turns of both").shows_default();
  app.add("--steps", options.steps, "", "Steps per turn").shows_default();
  app.read(argc, argv);
  if (is_launcher(options.launch)) return launch_ranks(options.launch, argc, argv);

  Job job(read_rank_environment(options.launch));
  ProcessGroup& world = job.world();
  const int share = thread_count();
  const auto cores = static_cast<int>(std::thread::hardware_concurrency());
  LlamaConfig config;
  config.vocab_size = options.vocab;
  LlamaStage model(config, StageSpan::whole(config), Device::kCpu, 1);
  Adam optimizer(model.parameters().numel(), AdamConfig{}, lab01::adam_update);
  // One step of the whole job takes accumulate * ranks * batch sequences, whoever reads them.
  const auto own = random_batches(config, options.accumulate, options.batch);
  const auto whole = random_batches(config, options.accumulate, options.batch * world.size());
  const double tokens = static_cast<double>(options.steps * options.accumulate * options.batch *
                                            world.size() * config.context);

  std::vector<double> alone_rates;
  std::vector<double> together_rates;
  std::vector<double> ratios;
  std::vector<double> communication;
  for (int round = -1; round < options.rounds; ++round) {  // the first is for warming up
    double alone_s = 0.0;
    if (world.rank() == 0) {  // the others sleep in the barrier
      set_thread_count(cores);
      alone_s = seconds([&] {
        for (int i = 0; i < options.steps; ++i)
          lab01::train_step(model, optimizer, whole, lab01::causal_lm_loss, 1e-5F, 1.0);
      });
      set_thread_count(share);
    }
    world.barrier();
    const double before_s = seconds_in_all_reduce(world.recorder());
    const double together_s = seconds([&] {
      for (int i = 0; i < options.steps; ++i)
        lab02::train_step(model, optimizer, own, lab01::causal_lm_loss, 1e-5F, 1.0, world);
      world.barrier();
    });
    const double waited_s = seconds_in_all_reduce(world.recorder()) - before_s;
    if (round < 0) continue;
    alone_rates.push_back(tokens / alone_s);
    together_rates.push_back(tokens / together_s);
    ratios.push_back(alone_s / together_s);
    communication.push_back(waited_s / together_s);
  }
  if (world.rank() != 0) return 0;
  fmt::print("vocabulary {}, {} x {} x {} sequences a step (ranks x microbatches x batch)\n",
             options.vocab, world.size(), options.accumulate, options.batch);
  fmt::print("one process, {} threads     {:8.0f} tokens/s\n", cores, median(alone_rates));
  fmt::print("{} ranks, {} thread(s) each  {:8.0f} tokens/s, {:.0f} % of it in all_reduce\n",
             world.size(), share, median(together_rates), 100 * median(communication));
  fmt::print("ratio                      {:8.2f}   (median of {} rounds, {:.2f} to {:.2f})\n",
             median(ratios), options.rounds, std::ranges::min(ratios), std::ranges::max(ratios));
  return 0;
}

}  // namespace
}  // namespace lab::bench

int main(int argc, char** argv) { return lab::run_main(argc, argv, lab::bench::run); }
