// bench_step: time, rate and memory of the training step (lab 01's solution), against the rate of
// the matrix products it is made of, measured in turns in the same run.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>

#include "common/model/llama_stage.h"
#include "common/optim/optimizer.h"
#include "common/tensor/error.h"
#include "common/tensor/parallel.h"
#include "labs/01_single_gpu/single_gpu.h"
#include "tests/bench/matmul_rate.h"

namespace lab::bench {
namespace {

struct Options {
  int64_t vocab = 4096;
  int64_t batch = 3;
  int64_t context = 256;
  int threads = 0;  // all cores
  int steps = 20;
  int rounds = 5;
  bool step_only = false;
  bool json = false;
};

/// Peak resident memory of this process in MiB (Linux; 0 elsewhere).
double peak_mib() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;)
    if (double kib = 0.0; word == "VmHWM:" && status >> kib) return kib / 1024.0;
  return 0.0;
}

/// A model in training on random tokens.
class Training {
 public:
  Training(const LlamaConfig& config, int64_t batch)
      : model_(config, StageSpan::whole(config), Device::kCpu, 1),
        optimizer_(model_.parameters().numel(), AdamConfig{}, lab01::adam_update),
        tokens_{batch, config.context, {}} {
    tokens_.tokens.resize(static_cast<size_t>(batch * config.context));
  }

  double step() {
    const auto vocab = static_cast<uint64_t>(model_.config().vocab_size);
    for (int32_t& token : tokens_.tokens) token = static_cast<int32_t>(random_() % vocab);
    return seconds([&] {
      lab01::train_step(model_, optimizer_, std::span(&tokens_, 1), lab01::causal_lm_loss, 8e-4F,
                        0.0);
    });
  }

  int64_t parameter_count() const { return model_.parameter_count(); }

 private:
  LlamaStage model_;
  Adam optimizer_;
  TokenBatch tokens_;
  std::mt19937_64 random_{1};
};

/// GFLOP/s of the products of one step, if each ran at the best of a few repeats.
double matmul_gflops(const std::vector<LinearLayer>& layers) {
  double flops = 0.0;
  double time = 0.0;
  for (const LinearLayer& layer : layers) {
    flops += layer.flops() * static_cast<double>(layer.per_step);
    time += layer.best_seconds(/*repeats=*/4) * static_cast<double>(layer.per_step);
  }
  return flops / time / 1e9;
}

void run(const Options& options) {
  set_thread_count(options.threads);
  LlamaConfig config;
  config.vocab_size = options.vocab;
  config.context = options.context;
  const double flops = step_flops(config, options.batch, options.context);

  Training training(config, options.batch);
  for (int i = 0; i < 3; ++i) training.step();  // warm-up
  const double peak = peak_mib();               // before the buffers of the product benchmark

  std::vector<LinearLayer> layers;
  if (!options.step_only) layers = linear_layers(config, options.batch * options.context);
  std::vector<double> step_times;
  std::vector<double> rates;
  std::vector<double> shares;
  for (int round = 0; round < options.rounds; ++round) {
    std::vector<double> times;
    for (int i = 0; i < std::max(1, options.steps / options.rounds); ++i)
      times.push_back(training.step());
    step_times.insert(step_times.end(), times.begin(), times.end());
    if (options.step_only) continue;
    rates.push_back(matmul_gflops(layers));
    shares.push_back(flops / median(times) / 1e9 / rates.back());
  }

  const double time = median(step_times);
  nlohmann::ordered_json result = {
      {"program", "workbook"},
      {"vocab", options.vocab},
      {"batch", options.batch},
      {"context", options.context},
      {"threads", thread_count()},
      {"parameters", training.parameter_count()},
      {"milliseconds_per_step", 1e3 * time},
      {"tokens_per_second", static_cast<double>(options.batch * options.context) / time},
      {"gflops", flops / time / 1e9},
      {"peak_mib", peak},
  };
  if (!options.step_only) {
    result["matmul_gflops"] = median(rates);
    result["share_of_matmul"] = median(shares);
  }
  if (options.json) {
    fmt::print("{}\n", result.dump());
    return;
  }
  fmt::print("{} parameters, vocabulary {}, {} sequences of {} tokens, {} threads\n\n",
             training.parameter_count(), options.vocab, options.batch, options.context,
             thread_count());
  fmt::print("training step       {:8.1f} ms     {:.0f} tokens/s\n", 1e3 * time,
             result["tokens_per_second"].get<double>());
  fmt::print("  its operations    {:8.2f} GFLOP  {:.0f} GFLOP/s\n", flops / 1e9,
             flops / time / 1e9);
  fmt::print("peak memory         {:8.0f} MiB\n", peak);
  if (options.step_only) return;
  fmt::print("matrix products     {:8.0f} GFLOP/s, the step's own, each at its best\n",
             median(rates));
  fmt::print("share of that rate  {:8.0f} %      (median of {} rounds, {:.0f} to {:.0f} %)\n",
             100 * median(shares), options.rounds, 100 * std::ranges::min(shares),
             100 * std::ranges::max(shares));
}

}  // namespace
}  // namespace lab::bench

int main(int argc, char** argv) {
  lab::bench::Options options;
  CLI::App app("Times the training step and the matrix products it consists of");
  const CLI::Range at_least_one(1, 1 << 30);
  const auto add = [&](const char* name, auto& value, const char* what) {
    return app.add_option(name, value, what)->check(at_least_one)->capture_default_str();
  };
  add("--vocab", options.vocab, "vocabulary size");
  add("--batch", options.batch, "sequences per step");
  add("--context", options.context, "tokens per sequence");
  add("--threads", options.threads, "default: all cores");
  add("--steps", options.steps, "steps to time, over all rounds");
  add("--rounds", options.rounds, "turns of steps and products");
  app.add_flag("--step-only", options.step_only, "do not time matrix products");
  app.add_flag("--json", options.json, "one JSON object instead of a table");
  CLI11_PARSE(app, argc, argv);
  try {
    lab::bench::run(options);
  } catch (const lab::Error& error) {
    fmt::print(stderr, "error: {}\n", error.what());
    return 1;
  }
  return 0;
}
