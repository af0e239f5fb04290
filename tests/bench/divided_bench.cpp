// bench_divided: training steps in shards (lab 09) and in slices (lab 10) against lab 02's, and
// against one process on all cores, with the same global batch, in turns in the same run.
#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "common/comm/agreement.h"
#include "common/model/llama_stage.h"
#include "common/optim/optimizer.h"
#include "common/run/launch/job.h"
#include "common/run/launch/launcher.h"
#include "common/run/options/command_line.h"
#include "common/run/options/main_guard.h"
#include "common/tensor/parallel.h"
#include "labs/01_single_gpu/single_gpu.h"
#include "labs/02_gradient_allreduce/gradient_allreduce.h"
#include "labs/09_sharded/sharded.h"
#include "labs/10_tensor_parallel/passes.h"
#include "tests/bench/random_batches.h"
#include "tests/bench/rounds.h"

namespace lab::bench {
namespace {

constexpr float kRate = 1e-5F;
constexpr double kClip = 1.0;

struct Options {
  LaunchOptions launch;
  int64_t batch = 3;       // sequences per microbatch and rank
  int64_t accumulate = 1;  // microbatches per step and rank
  int rounds = 5;
  int steps = 2;  // per round
};

/// A way to take one step; the memory of its model lives as long as it does.
struct Way {
  std::string name;
  std::function<void()> step;
  std::vector<double> seconds = {};    // of a step, by round
  std::vector<double> processor = {};  // time of all ranks together: also true on a busy machine
};

/// By round, how many times as fast as `other`.
std::vector<double> ratios(const std::vector<double>& own, const std::vector<double>& other) {
  std::vector<double> result;
  for (size_t round = 0; round < own.size(); ++round) result.push_back(other[round] / own[round]);
  return result;
}

std::unique_ptr<Optimizer> adam(int64_t size) {
  return std::make_unique<Adam>(size, AdamConfig{}, lab01::adam_update);
}

Way replicas(const LlamaConfig& config, const std::vector<TokenBatch>& own, ProcessGroup& world) {
  auto model = std::make_shared<LlamaStage>(config, StageSpan::whole(config), Device::kCpu, 1);
  std::shared_ptr<Optimizer> optimizer = adam(model->parameters().numel());
  return {"lab 02", [model, optimizer, &own, &world] {
            lab02::train_step(*model, *optimizer, own, lab01::causal_lm_loss, kRate, kClip, world);
          }};
}

Way shards(const LlamaConfig& config, int stage, const std::vector<TokenBatch>& own,
           ProcessGroup& world) {
  auto model = std::make_shared<LlamaStage>(config, StageSpan::whole(config), Device::kCpu, 1,
                                            WeightMemory::kBound);
  auto sharded = std::make_shared<lab09::Sharded>(lab09::make_sharded(*model, world, stage, adam));
  lab09::attach(*sharded);
  return {fmt::format("ZeRO {}", stage), [model, sharded, &own] {
            lab09::train_step(*sharded, own, lab01::causal_lm_loss, kRate, kClip);
          }};
}

/// All ranks divide every layer, and read the same sequences: those of all ranks.
Way slices(const LlamaConfig& config, const std::vector<TokenBatch>& all, ProcessGroup& world) {
  auto stage =
      std::make_shared<LlamaStage>(lab10::make_stage(config, StageSpan::whole(config), world, 1));
  std::shared_ptr<Optimizer> optimizer = adam(stage->parameters().numel());
  const Range vocabulary = lab10::vocabulary_of(config, world);
  return {fmt::format("tp {}", world.size()), [=, &all, &world] {
            int64_t targets = 0;
            for (const TokenBatch& batch : all) targets += batch.target_count();
            stage->zero_gradients();
            for (const TokenBatch& batch : all) {
              const Tensor logits = stage->forward(batch);
              lab10::causal_lm_loss(logits, batch, targets, vocabulary, world);
              stage->backward(logits);
            }
            lab10::clip_gradients(*stage, kClip, world);
            optimizer->step(stage->parameters(), stage->gradients(), kRate);
          }};
}

int run(int argc, char** argv) {
  Options options;
  CommandLine app("Times training in shards and in slices against lab 02's and one process.");
  add_launch_options(app, options.launch);
  app.add("--batch", options.batch, "", "Sequences per microbatch and rank").shows_default();
  app.add("--accumulate", options.accumulate, "", "Microbatches per step and rank").shows_default();
  app.add("--rounds", options.rounds, "", "Turns of each").shows_default();
  app.add("--steps", options.steps, "", "Steps per turn").shows_default();
  app.read(argc, argv);
  if (is_launcher(options.launch)) return launch_ranks(options.launch, argc, argv);

  Job job(read_rank_environment(options.launch));
  ProcessGroup& world = job.world();
  const int share = thread_count();
  const auto cores = static_cast<int>(std::thread::hardware_concurrency());
  LlamaConfig config;
  config.vocab_size = 4096;
  const auto own = random_batches(config, options.accumulate, options.batch);
  const auto all = random_batches(config, options.accumulate, options.batch * world.size());
  const double tokens =
      static_cast<double>(options.accumulate * options.batch * world.size() * config.context);

  LlamaStage whole(config, StageSpan::whole(config), Device::kCpu, 1);
  const auto whole_optimizer = adam(whole.parameters().numel());
  std::vector<Way> ways;
  ways.push_back({"one process", [&] {
                    if (world.rank() != 0) return;  // the others sleep in the barrier
                    set_thread_count(cores);
                    lab01::train_step(whole, *whole_optimizer, all, lab01::causal_lm_loss, kRate,
                                      kClip);
                    set_thread_count(share);
                  }});
  ways.push_back(replicas(config, own, world));
  for (const int stage : {1, 2, 3}) ways.push_back(shards(config, stage, own, world));
  if (config.heads % world.size() == 0) ways.push_back(slices(config, all, world));

  for (int round = -1; round < options.rounds; ++round)  // the first is for warming up
    for (Way& way : ways) {
      const std::clock_t before = std::clock();
      const double time = seconds(world, [&] {
        for (int i = 0; i < options.steps; ++i) way.step();
      });
      const double processor =
          sum_over(world, static_cast<double>(std::clock() - before) / CLOCKS_PER_SEC);
      if (round < 0) continue;
      way.seconds.push_back(time / options.steps);
      way.processor.push_back(processor / options.steps);
    }
  if (world.rank() != 0) return 0;
  fmt::print("{} ranks, {} thread(s) each; {} x {} x {} sequences a step\n", world.size(), share,
             world.size(), options.accumulate, options.batch);
  for (const Way& way : ways) {
    fmt::print("{:<12} {:8.0f} tokens/s", way.name, tokens / median(way.seconds));
    for (const size_t other : {size_t{0}, size_t{1}}) {
      const std::vector<double> faster = ratios(way.seconds, ways[other].seconds);
      fmt::print("   {:.2f} of {} ({:.2f} to {:.2f}; {:.2f} by processor time)", median(faster),
                 ways[other].name, std::ranges::min(faster), std::ranges::max(faster),
                 median(ratios(way.processor, ways[other].processor)));
    }
    fmt::print("\n");
  }
  return 0;
}

}  // namespace
}  // namespace lab::bench

int main(int argc, char** argv) { return lab::run_main(argc, argv, lab::bench::run); }
