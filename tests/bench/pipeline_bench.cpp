// bench_pipeline: lab 05's solution against one process on all cores with the same microbatches, in
// turns in the same run: tokens per second, memory for activations, and what the runtime costs.
#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "common/error.h"
#include "common/model/llama_stage.h"
#include "common/model/split.h"
#include "common/optim/optimizer.h"
#include "common/pipeline/schedule.h"
#include "common/run/launch/job.h"
#include "common/run/launch/launcher.h"
#include "common/run/options/command_line.h"
#include "common/run/options/main_guard.h"
#include "common/run/training/pipeline_setup.h"
#include "common/tensor/parallel.h"
#include "common/tools/plan/shared_cores.h"
#include "labs/01_single_gpu/single_gpu.h"
#include "labs/04_pipeline_1f1b/pipeline_1f1b.h"
#include "labs/05_microbatches/microbatches.h"
#include "tests/bench/matmul_rate.h"
#include "tests/bench/random_batches.h"

namespace lab::bench {
namespace {

struct Options {
  LaunchOptions launch;
  std::string split;
  int64_t vocab = 4096;
  int64_t batch = 1;  // sequences per microbatch
  std::vector<int> microbatches = {3, 6, 12};
  int rounds = 5;
  int steps = 2;  // per round
};

/// CPU seconds of this process, all its threads.
double cpu_seconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

/// Adds up the CPU time of what is computed.
class ComputeClock {
 public:
  void begins() { begin_ = cpu_seconds(); }
  void ends() { sum_ += cpu_seconds() - begin_; }
  double seconds() const { return sum_; }

 private:
  double begin_ = 0.0;
  double sum_ = 0.0;
};

class ClockedAdam final : public Optimizer {
 public:
  ClockedAdam(int64_t size, ComputeClock& clock)
      : adam_(size, AdamConfig{}, lab01::adam_update), clock_(clock) {}
  void step(const Tensor& parameters, const Tensor& gradients, float learning_rate) override {
    clock_.begins();
    adam_.step(parameters, gradients, learning_rate);
    clock_.ends();
  }

 private:
  Adam adam_;
  ComputeClock& clock_;
};

struct Contestant {
  std::string name;
  Schedule program;
  std::vector<double> ratios = {};        // tokens/s, against one process
  std::vector<double> rates = {};         // tokens/s
  std::vector<double> runtime_cpu = {};   // share of CPU time that computes nothing, all ranks
  std::vector<float> activation_mb = {};  // by stage
};

/// Sums over all ranks.
std::vector<float> sum_over_ranks(std::vector<float> numbers, ProcessGroup& world) {
  const auto count = static_cast<int64_t>(numbers.size());
  const Tensor tensor = Tensor::from(std::move(numbers), {count});
  world.all_reduce(tensor);
  return {tensor.values().begin(), tensor.values().end()};
}

/// One turn of a schedule, on a new stage, since a stage keeps the memory for activations once
/// allocated.
double time_turn(Contestant& contestant, const Options& options, const LlamaConfig& config,
                 const StageSpan& span, const std::vector<TokenBatch>& microbatches,
                 ProcessGroup& world) {
  LlamaStage stage(config, span, Device::kCpu, 1);
  ComputeClock clock;
  stage.observe_passes(
      [&clock](LlamaStage::Pass, int, bool begins) { begins ? clock.begins() : clock.ends(); });
  ClockedAdam optimizer(stage.parameters().numel(), clock);
  const auto loss = [&clock](const Tensor& logits, const TokenBatch& batch, int64_t targets) {
    clock.begins();
    const double sum = lab01::causal_lm_loss(logits, batch, targets);
    clock.ends();
    return sum;
  };
  const auto step = [&] {
    lab05::train_step(stage, optimizer, contestant.program, microbatches, loss, 1e-5F, 1.0, world);
  };
  step();  // makes its buffers
  world.barrier();
  const double cpu_before = cpu_seconds();
  const double computed_before = clock.seconds();
  const double wall_s = seconds([&] {
    for (int i = 0; i < options.steps; ++i) step();
    world.barrier();
  });
  std::vector<float> sums = {static_cast<float>(cpu_seconds() - cpu_before),
                             static_cast<float>(clock.seconds() - computed_before)};
  for (int rank = 0; rank < world.size(); ++rank)
    sums.push_back(rank == world.rank() ? 1e-6F * static_cast<float>(stage.peak_activation_bytes())
                                        : 0.0F);
  sums = sum_over_ranks(std::move(sums), world);
  contestant.runtime_cpu.push_back(1.0 - double{sums[1]} / double{sums[0]});
  contestant.activation_mb.assign(sums.begin() + 2, sums.end());
  return wall_s;
}

/// Upper bound of tokens/s against one process that uses all cores fully.
double bound(const LlamaConfig& config, const std::vector<StageSpan>& spans, const Schedule& plan,
             int waves, unsigned cores) {
  std::vector<StageCosts> costs;
  double work = 0.0;
  for (const StageSpan& span : spans) {
    const double layers = static_cast<double>(span.last_layer - span.first_layer) +
                          (span.has_head ? head_cost(config, config.context) : 0.0);
    costs.push_back({.forward = layers, .backward = 2 * layers});
    work += 3 * layers * plan.microbatches;
  }
  return waves * work / cores /
         (waves * std::ranges::max(ends_on_shared_cores(plan, costs, cores)));
}

void compare(const Options& options, int m, Job& job) {
  ProcessGroup& world = job.world();
  LlamaConfig config;
  config.vocab_size = options.vocab;
  const int share = thread_count();
  const unsigned cores = std::thread::hardware_concurrency();
  const int stages = world.size();
  const auto spans = choose_stages(config, stages, options.split, lab04::split);
  const auto microbatches = random_batches(config, m, options.batch);
  const Schedule one = lab05::gpipe(stages, 1);  // as lab 04: one microbatch after the other
  std::vector<Contestant> contestants = {
      {"one by one", lab05::with_messages(one)},
      {"GPipe", lab05::with_messages(lab05::gpipe(stages, m))},
      {"1F1B", lab05::with_messages(lab05::one_f_one_b(stages, m))}};

  std::optional<LlamaStage> whole;
  std::optional<Adam> adam;
  if (world.rank() == 0) {
    whole.emplace(config, StageSpan::whole(config), Device::kCpu, 1);
    adam.emplace(whole->parameters().numel(), AdamConfig{}, lab01::adam_update);
  }
  const double tokens = static_cast<double>(options.steps * m * options.batch * config.context);
  std::vector<double> alone_rates;
  for (int round = -1; round < options.rounds; ++round) {  // the first is for warming up
    double alone_s = 0.0;
    if (world.rank() == 0) {  // the others sleep in the barrier
      set_thread_count(static_cast<int>(cores));
      alone_s = seconds([&] {
        for (int i = 0; i < options.steps; ++i)
          lab01::train_step(*whole, *adam, microbatches, lab01::causal_lm_loss, 1e-5F, 1.0);
      });
      set_thread_count(share);
    }
    world.barrier();
    if (round >= 0) alone_rates.push_back(tokens / alone_s);
    for (Contestant& contestant : contestants) {
      const double wall_s =
          time_turn(contestant, options, config, spans[static_cast<size_t>(world.rank())],
                    microbatches, world);
      if (round < 0) continue;
      contestant.rates.push_back(tokens / wall_s);
      contestant.ratios.push_back(alone_s / wall_s);
    }
  }
  if (world.rank() != 0) return;
  fmt::print("\nvocabulary {}, {} microbatches of {} sequences, {} stages ({})\n", options.vocab, m,
             options.batch, stages, describe_stages(spans));
  fmt::print("one process, {} threads: {:.0f} tokens/s; activations {:.1f} MB\n", cores,
             median(alone_rates), 1e-6 * static_cast<double>(whole->peak_activation_bytes()));
  fmt::print("{:<11} {:>8} {:>6} {:>15} {:>6} {:>9}  {}\n", "schedule", "tokens/s", "ratio",
             "(least to most)", "bound", "runtime", "activations by stage, MB");
  for (const Contestant& c : contestants) {
    Schedule plan = c.program;
    for (ActionList& list : plan.stages)
      std::erase_if(list, [](const Action& action) { return is_message(action.kind); });
    fmt::print(
        "{:<11} {:>8.0f} {:>6.2f} {:>15} {:>6.2f} {:>7.1f} %  {:.1f}\n", c.name, median(c.rates),
        median(c.ratios),
        fmt::format("({:.2f} to {:.2f})", std::ranges::min(c.ratios), std::ranges::max(c.ratios)),
        bound(config, spans, plan, m / plan.microbatches, cores), 100 * median(c.runtime_cpu),
        fmt::join(c.activation_mb, ", "));
  }
}

int run(int argc, char** argv) {
  Options options;
  CommandLine app("Times a pipeline against one process on all cores.");
  add_launch_options(app, options.launch);
  app.add("--split", options.split, "N,N,..", "Layers of each stage");
  app.add("--vocab", options.vocab, "", "Vocabulary size").shows_default();
  app.add("--batch", options.batch, "", "Sequences per microbatch").shows_default();
  app.add("--microbatches", options.microbatches, "", "Per step: 3,6,12").comma_separated();
  app.add("--rounds", options.rounds, "", "Turns of all").shows_default();
  app.add("--steps", options.steps, "", "Steps per turn").shows_default();
  app.read(argc, argv);
  if (is_launcher(options.launch)) return launch_ranks(options.launch, argc, argv);

  Job job(read_rank_environment(options.launch));
  for (int m : options.microbatches) compare(options, m, job);
  if (job.world().rank() == 0)
    fmt::print(
        "\nratio: to one process, median of {} rounds. bound: by balance of work on {} cores.\n"
        "runtime: CPU time of all ranks outside forward, backward, loss and update.\n",
        options.rounds, std::thread::hardware_concurrency());
  return 0;
}

}  // namespace
}  // namespace lab::bench

int main(int argc, char** argv) { return lab::run_main(argc, argv, lab::bench::run); }
