// bench_overlap: lab 08's step against lab 02's, both solutions, in turns in the same run: does
// overlap cost anything where the network is not slow? (Where it is: slow_link.sh.)
#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "common/model/llama_stage.h"
#include "common/optim/optimizer.h"
#include "common/run/launch/job.h"
#include "common/run/launch/launcher.h"
#include "common/run/options/command_line.h"
#include "common/run/options/main_guard.h"
#include "labs/01_single_gpu/single_gpu.h"
#include "labs/02_gradient_allreduce/gradient_allreduce.h"
#include "labs/08_overlap/overlap.h"
#include "tests/bench/random_batches.h"
#include "tests/bench/rounds.h"

namespace lab::bench {
namespace {

struct Options {
  LaunchOptions launch;
  int64_t cap_kb = 1024;  // as in lab 08's program
  int64_t first_cap_kb = 256;
  int64_t batch = 1;       // sequences per microbatch and rank
  int64_t accumulate = 1;  // microbatches per rank and step
  int rounds = 31;
};

int run(int argc, char** argv) {
  Options options;
  CommandLine app("Times steps of lab 02 and of lab 08 in turns.");
  add_launch_options(app, options.launch);
  app.add("--bucket-kb", options.cap_kb, "", "Capacity of a bucket").shows_default();
  app.add("--first-bucket-kb", options.first_cap_kb, "", "Of the first").shows_default();
  app.add("--batch", options.batch, "", "Sequences per microbatch and rank").shows_default();
  app.add("--accumulate", options.accumulate, "", "Microbatches per step").shows_default();
  app.add("--rounds", options.rounds, "", "Steps of each").within(1, 100'000).shows_default();
  app.read(argc, argv);
  if (is_launcher(options.launch)) return launch_ranks(options.launch, argc, argv);

  Job job(read_rank_environment(options.launch));
  ProcessGroup& world = job.world();
  const LlamaConfig config;
  LlamaStage model(config, StageSpan::whole(config), Device::kCpu, 1);
  Adam optimizer(model.parameters().numel(), AdamConfig{}, lab01::adam_update);
  const auto batches = random_batches(config, options.accumulate, options.batch);
  lab08::Reducer reducer =
      lab08::make_reducer(model, 1000 * options.cap_kb, 1000 * options.first_cap_kb, world);
  constexpr float kRate = 1e-5F;
  constexpr double kClip = 1.0;
  std::vector<double> blocking;
  std::vector<double> overlapped;
  std::vector<double> ratios;
  for (int round = -2; round < options.rounds; ++round) {  // two to warm up
    const double blocking_s = seconds(world, [&] {
      lab02::train_step(model, optimizer, batches, lab01::causal_lm_loss, kRate, kClip, world);
    });
    const double overlapped_s = seconds(world, [&] {
      lab08::train_step(model, optimizer, batches, lab01::causal_lm_loss, kRate, kClip, reducer);
    });
    if (round < 0) continue;
    blocking.push_back(blocking_s);
    overlapped.push_back(overlapped_s);
    ratios.push_back(overlapped_s / blocking_s);
  }
  if (world.rank() != 0) return 0;
  const auto print = [](const char* name, const std::vector<double>& times) {
    fmt::print("{:26} {:8.1f} ms   (fastest {:.1f})\n", name, 1e3 * median(times),
               1e3 * std::ranges::min(times));
  };
  fmt::print("{} ranks, {} buckets\n", world.size(), reducer.buckets.size());
  print("lab 02: after the backward", blocking);
  print("lab 08: during it", overlapped);
  fmt::print(
      "time of lab 08 / lab 02    {:8.2f}      (median of {} rounds; of the fastest {:.2f})\n",
      median(ratios), options.rounds, std::ranges::min(overlapped) / std::ranges::min(blocking));
  return 0;
}

}  // namespace
}  // namespace lab::bench

int main(int argc, char** argv) { return lab::run_main(argc, argv, lab::bench::run); }
