// bench_hybrid: lab 06's solution against one process on all cores with the same global batch, in
// turns in the same run.
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <thread>
#include <vector>

#include "common/model/llama_stage.h"
#include "common/run/launch/job.h"
#include "common/run/launch/launcher.h"
#include "common/run/options/command_line.h"
#include "common/run/options/main_guard.h"
#include "common/run/training/pipeline_setup.h"
#include "common/tensor/parallel.h"
#include "labs/01_single_gpu/single_gpu.h"
#include "labs/04_pipeline_1f1b/pipeline_1f1b.h"
#include "labs/05_microbatches/microbatches.h"
#include "labs/06_hybrid_2x3/hybrid_2x3.h"
#include "tests/bench/all_reduce_time.h"
#include "tests/bench/matmul_rate.h"
#include "tests/bench/random_batches.h"

namespace lab::bench {
namespace {

struct Options {
  LaunchOptions launch;
  std::string split;
  int dp = 2;
  int pp = 3;
  int64_t vocab = 4096;
  int64_t batch = 1;  // sequences per microbatch of a pipeline
  std::vector<int> microbatches = {3, 6, 12};
  int rounds = 5;
  int steps = 2;  // per round
};

void compare(const Options& options, int m, Job& job, lab06::Mesh& mesh) {
  ProcessGroup& world = job.world();
  LlamaConfig config;
  config.vocab_size = options.vocab;
  const int share = thread_count();
  const auto cores = static_cast<int>(std::thread::hardware_concurrency());
  const auto spans = choose_stages(config, options.pp, options.split, lab04::split);
  const Schedule schedule = lab05::with_messages(lab05::one_f_one_b(options.pp, m));
  LlamaStage stage(config, spans[static_cast<size_t>(mesh.place.stage)], Device::kCpu, 1);
  Adam adam(stage.parameters().numel(), AdamConfig{}, lab01::adam_update);
  const auto own = random_batches(config, m, options.batch);
  // One process reads as many sequences, in as many microbatches: it has them larger.
  const auto all = random_batches(config, m, options.batch * options.dp);
  std::optional<LlamaStage> whole;
  std::optional<Adam> whole_adam;
  if (world.rank() == 0) {
    whole.emplace(config, StageSpan::whole(config), Device::kCpu, 1);
    whole_adam.emplace(whole->parameters().numel(), AdamConfig{}, lab01::adam_update);
  }

  const double tokens =
      static_cast<double>(options.steps * m * options.batch * options.dp * config.context);
  std::vector<double> alone_rates;
  std::vector<double> rates;
  std::vector<double> ratios;
  std::vector<double> reducing;
  for (int round = -1; round < options.rounds; ++round) {  // the first is for warming up
    double alone_s = 0.0;
    if (world.rank() == 0) {  // the others sleep in the barrier
      set_thread_count(cores);
      alone_s = seconds([&] {
        for (int i = 0; i < options.steps; ++i)
          lab01::train_step(*whole, *whole_adam, all, lab01::causal_lm_loss, 1e-5F, 1.0);
      });
      set_thread_count(share);
    }
    world.barrier();
    const double before_s = seconds_in_all_reduce(world.recorder());
    const double together_s = seconds([&] {
      for (int i = 0; i < options.steps; ++i)
        lab06::train_step(stage, adam, schedule, own, lab01::causal_lm_loss, 1e-5F, 1.0, mesh);
      world.barrier();
    });
    const double reduced_s = seconds_in_all_reduce(world.recorder()) - before_s;
    if (round < 0) continue;
    alone_rates.push_back(tokens / alone_s);
    rates.push_back(tokens / together_s);
    ratios.push_back(alone_s / together_s);
    reducing.push_back(reduced_s / together_s);
  }
  if (world.rank() != 0) return;
  fmt::print("{:>12} {:>10.0f} {:>10.0f} {:>6.2f} {:>15} {:>8.0f} %\n", m, median(alone_rates),
             median(rates), median(ratios),
             fmt::format("({:.2f} to {:.2f})", std::ranges::min(ratios), std::ranges::max(ratios)),
             100 * median(reducing));
  std::fflush(stdout);
}

int run(int argc, char** argv) {
  Options options;
  CommandLine app("Times pipelines that train together against one process on all cores.");
  add_launch_options(app, options.launch);
  app.add("--split", options.split, "N,N,..", "Layers of each stage");
  app.add("--dp", options.dp, "", "Pipelines").shows_default();
  app.add("--pp", options.pp, "", "Stages of each").shows_default();
  app.add("--vocab", options.vocab, "", "Vocabulary size").shows_default();
  app.add("--batch", options.batch, "", "Sequences per microbatch").shows_default();
  app.add("--microbatches", options.microbatches, "", "Per pipeline and step: 3,6,12")
      .comma_separated();
  app.add("--rounds", options.rounds, "", "Turns of both").shows_default();
  app.add("--steps", options.steps, "", "Steps per turn").shows_default();
  app.read(argc, argv);
  if (options.launch.ranks == 0 && read_rank_environment(options.launch).world_size == 1)
    options.launch.ranks = options.dp * options.pp;
  if (is_launcher(options.launch)) return launch_ranks(options.launch, argc, argv);

  Job job(read_rank_environment(options.launch));
  lab06::Mesh mesh = lab06::make_mesh(job.world(), options.dp, options.pp);
  if (job.world().rank() == 0)
    fmt::print(
        "{} pipelines of {} stages, 1F1B, vocabulary {}, {} sequences a microbatch\n"
        "{:>12} {:>10} {:>10} {:>6} {:>15} {:>10}\n"
        "{:>12} {:>10} {:>10}\n",
        options.dp, options.pp, options.vocab, options.batch, "microbatches", "one process",
        "hybrid", "ratio", "(least to most)", "all-reduce", "", "tokens/s", "tokens/s");
  for (const int m : options.microbatches) compare(options, m, job, mesh);
  if (job.world().rank() == 0)
    fmt::print("all-reduce: what rank 0 spends in it, waiting for the other pipeline included\n");
  return 0;
}

}  // namespace
}  // namespace lab::bench

int main(int argc, char** argv) { return lab::run_main(argc, argv, lab::bench::run); }
