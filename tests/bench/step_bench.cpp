// bench_step: time, rate and memory of the training step (lab 01's solution), on the CPU or a GPU,
// against the rate of matrix products measured in turns in the same run: on the CPU those that the
// step is made of, on a GPU a large square one. On the CPU also in bfloat16 against float32, and
// beside another program.
#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>

#include "common/error.h"
#include "common/ops/precision.h"
#include "common/run/options/choose_device.h"
#include "common/run/options/command_line.h"
#include "common/run/options/main_guard.h"
#include "common/tensor/parallel.h"
#include "tests/bench/timed_training.h"

namespace lab::bench {
namespace {

/// Sizes that are not given are those of the model.
struct Options {
  std::string model = "seed";
  std::optional<int64_t> vocab, dim, heads, layers, hidden, context;
  int64_t batch = 3;
  std::string device = "cpu";
  std::string precision = "float32";
  bool against_float32 = false;
  bool busy = false;
  int64_t product = 4096;
  int threads = 0;  // all cores
  int warmup = 3;
  int steps = 20;
  int rounds = 5;
  bool step_only = false;
  bool json = false;

  LlamaConfig config() const {
    LlamaConfig config;  // the seed model
    if (model == "large") {
      config.dim = 1024;
      config.heads = 16;
      config.layers = 16;
      config.hidden_dim = 4096;
      config.context = 1024;
    }
    config.vocab_size = vocab.value_or(config.vocab_size);
    config.dim = dim.value_or(config.dim);
    config.heads = heads.value_or(config.heads);
    config.kv_heads = config.heads;
    config.layers = layers.value_or(config.layers);
    config.hidden_dim = hidden.value_or(config.hidden_dim);
    config.context = context.value_or(config.context);
    config.validate();
    return config;
  }
};

/// Peak resident memory of this process in MiB (Linux; 0 elsewhere).
double peak_mib() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;)
    if (double kib = 0.0; word == "VmHWM:" && status >> kib) return kib / 1024.0;
  return 0.0;
}

double free_gpu_mib() { return static_cast<double>(accelerator().free_bytes()) / (1 << 20); }

/// The products that the step is measured against.
class Products {
 public:
  Products(const Options& options, const LlamaConfig& config, Device device) {
    if (device == Device::kCuda)
      square_.emplace(options.product, device);
    else
      layers_ = linear_layers(config, options.batch * config.context);
  }

  /// On the CPU: of the products of one step, if each ran at the best of a few repeats.
  double gflops() const {
    if (square_) return square_->best_gflops(/*repeats=*/5);
    double flops = 0.0;
    double time = 0.0;
    for (const LinearLayer& layer : layers_) {
      flops += layer.flops() * static_cast<double>(layer.per_step);
      time += layer.best_seconds(/*repeats=*/4) * static_cast<double>(layer.per_step);
    }
    return flops / time / 1e9;
  }

 private:
  std::optional<SquareProduct> square_;
  std::vector<LinearLayer> layers_;
};

struct Measured {
  std::vector<double> step_seconds, gflops, shares, waiting;
};

Measured measure(const Options& options, TimedTraining& training, const Products* products,
                 double flops, Device device) {
  Measured measured;
  for (int round = 0; round < options.rounds; ++round) {
    std::vector<double> times;
    for (int i = 0; i < std::max(1, options.steps / options.rounds); ++i)
      times.push_back(training.step());
    measured.step_seconds.insert(measured.step_seconds.end(), times.begin(), times.end());
    if (device == Device::kCuda) measured.waiting.push_back(training.share_of_waiting());
    if (products == nullptr) continue;
    measured.gflops.push_back(products->gflops());
    measured.shares.push_back(flops / median(times) / 1e9 / measured.gflops.back());
  }
  return measured;
}

void print(const nlohmann::ordered_json& r, const Measured& measured, double flops) {
  const bool on_gpu = !measured.waiting.empty();
  fmt::print(
      "{} parameters, vocabulary {}, {} sequences of {} tokens, {}, {}\n\n",
      r["parameters"].get<int64_t>(), r["vocab"].get<int64_t>(), r["batch"].get<int64_t>(),
      r["context"].get<int64_t>(),
      on_gpu ? r["device"].get<std::string>() : fmt::format("{} threads", r["threads"].get<int>()),
      r["precision"].get<std::string>());
  fmt::print("training step       {:8.3g} ms     {:.0f} tokens/s\n",
             r["milliseconds_per_step"].get<double>(), r["tokens_per_second"].get<double>());
  fmt::print("  its operations    {:8.2f} GFLOP  {:.0f} GFLOP/s\n", flops / 1e9,
             r["gflops"].get<double>());
  if (on_gpu)
    fmt::print("host only waits     {:8.0f} %      of the step: the GPU is busy at least so long\n",
               100 * median(measured.waiting));
  fmt::print("{:<19} {:8.0f} MiB\n", on_gpu ? "GPU memory" : "peak memory",
             r[on_gpu ? "gpu_mib" : "peak_mib"].get<double>());
  if (measured.gflops.empty()) return;
  fmt::print("matrix products     {:8.0f} GFLOP/s, {}\n", median(measured.gflops),
             on_gpu ? "square, at their best" : "the step's own, each at its best");
  fmt::print("share of that rate  {:8.0f} %      (median of {} rounds, {:.0f} to {:.0f} %)\n",
             100 * median(measured.shares), measured.shares.size(),
             100 * std::ranges::min(measured.shares), 100 * std::ranges::max(measured.shares));
}

/// Keeps one core busy as long as this object lives.
class BusyProgram {
 public:
  BusyProgram() : pid_(fork()) {
    require(pid_ >= 0, "cannot start another process");
    if (pid_ > 0) return;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (volatile uint64_t turns = 0;;) turns = turns + 1;
  }
  ~BusyProgram() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  BusyProgram(const BusyProgram&) = delete;
  BusyProgram& operator=(const BusyProgram&) = delete;

 private:
  pid_t pid_;
};

/// Steps on an idle machine, and while another program keeps one core busy, in turns.
void run_beside_another(const Options& options) {
  set_thread_count(options.threads);
  choose_device("cpu", options.precision);
  TimedTraining training(options.config(), options.batch, Device::kCpu);
  const auto time_of_step = [&] {
    std::vector<double> times;
    for (int i = 0; i < std::max(1, options.steps / options.rounds); ++i)
      times.push_back(training.step());
    return median(times);
  };
  for (int i = 0; i < options.warmup; ++i) training.step();
  std::vector<double> quiet, busy, ratios;
  for (int round = 0; round < options.rounds; ++round) {
    training.step();  // the scheduler, and SpinControl, find their way
    quiet.push_back(time_of_step());
    const BusyProgram other;
    training.step();
    busy.push_back(time_of_step());
    ratios.push_back(busy.back() / quiet.back());
  }
  fmt::print("training step       {:8.3g} ms, {:.3g} ms beside a program that keeps a core busy\n",
             1e3 * median(quiet), 1e3 * median(busy));
  fmt::print("it takes            {:8.2f} x      as long (median of {} rounds, {:.2f} to {:.2f})\n",
             median(ratios), ratios.size(), std::ranges::min(ratios), std::ranges::max(ratios));
  fmt::print("{} threads\n", thread_count());
}

/// Steps and their products in bfloat16 and in float32, in turns, on the CPU.
void run_against_float32(const Options& options) {
  set_thread_count(options.threads);
  const LlamaConfig config = options.config();
  struct Side {
    Precision precision;
    TimedTraining training;
    Products products;
    std::vector<double> steps = {};
  };
  const auto side = [&](Precision precision) {
    set_precision(Device::kCpu, precision);
    return Side{precision, TimedTraining(config, options.batch, Device::kCpu),
                Products(options, config, Device::kCpu)};
  };
  Side sides[] = {side(Precision::kFloat32), side(Precision::kBfloat16)};
  std::vector<double> step_ratios, product_ratios;
  for (int round = -1; round < options.rounds; ++round) {  // one to warm up
    double step[2], gflops[2];
    for (int s = 0; s < 2; ++s) {
      set_precision(Device::kCpu, sides[s].precision);
      std::vector<double> times;
      for (int i = 0; i < std::max(1, options.steps / options.rounds); ++i)
        times.push_back(sides[s].training.step());
      step[s] = median(times);
      gflops[s] = sides[s].products.gflops();
    }
    if (round < 0) continue;
    for (int s = 0; s < 2; ++s) sides[s].steps.push_back(step[s]);
    step_ratios.push_back(step[0] / step[1]);
    product_ratios.push_back(gflops[1] / gflops[0]);
  }
  fmt::print("training step       {:8.3g} ms in float32, {:.3g} ms in bfloat16\n",
             1e3 * median(sides[0].steps), 1e3 * median(sides[1].steps));
  const auto line = [](const char* what, const std::vector<double>& ratios) {
    fmt::print("{:<19} {:8.2f} x      (median of {} rounds, {:.2f} to {:.2f})\n", what,
               median(ratios), ratios.size(), std::ranges::min(ratios), std::ranges::max(ratios));
  };
  line("steps are faster", step_ratios);
  line("products are faster", product_ratios);
}

void run(const Options& options) {
  set_thread_count(options.threads);
  const DeviceChoice choice = choose_device(options.device, options.precision);
  const bool on_gpu = choice.device == Device::kCuda;
  const LlamaConfig config = options.config();
  const double flops = step_flops(config, options.batch, config.context);

  const double free_before = on_gpu ? free_gpu_mib() : 0.0;
  TimedTraining training(config, options.batch, choice.device);
  for (int i = 0; i < options.warmup; ++i) training.step();
  const double peak = peak_mib();  // before the buffers of the product benchmark
  const double gpu_mib = on_gpu ? free_before - free_gpu_mib() : 0.0;

  std::optional<Products> products;
  if (!options.step_only) products.emplace(options, config, choice.device);
  const Measured measured =
      measure(options, training, products ? &*products : nullptr, flops, choice.device);

  const double time = median(measured.step_seconds);
  nlohmann::ordered_json result = {
      {"program", "workbook"},
      {"device", choice.why},
      {"precision", options.precision},
      {"vocab", config.vocab_size},
      {"dim", config.dim},
      {"layers", config.layers},
      {"batch", options.batch},
      {"context", config.context},
      {"threads", thread_count()},
      {"parameters", training.parameter_count()},
      {"milliseconds_per_step", 1e3 * time},
      {"tokens_per_second", static_cast<double>(options.batch * config.context) / time},
      {"gflops", flops / time / 1e9},
      {"peak_mib", peak},
  };
  if (on_gpu) {
    result["gpu_mib"] = gpu_mib;
    result["waiting_share"] = median(measured.waiting);
  }
  if (products) {
    result["matmul_gflops"] = median(measured.gflops);
    result["share_of_matmul"] = median(measured.shares);
    result["share_min"] = std::ranges::min(measured.shares);
    result["share_max"] = std::ranges::max(measured.shares);
  }
  if (options.json)
    fmt::print("{}\n", result.dump());
  else
    print(result, measured, flops);
}

int main_of_bench(int argc, char** argv) {
  Options options;
  CommandLine app("Times the training step, and matrix products to compare it with");
  const auto add = [&](const char* name, auto& value, const char* what) {
    return app.add(name, value, "", what).within(1, 1 << 30).shows_default();
  };
  app.add("--model", options.model, "",
          "seed: that of the workbook; large: 1024 wide, 16 layers, context 1024")
      .one_of({"seed", "large"})
      .shows_default();
  add("--vocab", options.vocab, "vocabulary size");
  add("--dim", options.dim, "width of the model");
  add("--heads", options.heads, "attention heads");
  add("--layers", options.layers, "layers");
  add("--hidden", options.hidden, "width of the feed-forward part");
  add("--context", options.context, "tokens per sequence");
  add("--batch", options.batch, "sequences per step");
  app.add("--device", options.device, "", "cpu, cuda or auto").shows_default();
  app.add("--precision", options.precision, "", "of computing: float32, tf32 or bfloat16")
      .shows_default();
  app.add_flag("--against-float32", options.against_float32,
               "on the CPU: bfloat16 and float32 in turns");
  app.add_flag("--busy", options.busy,
               "on the CPU: with and without another program that keeps a core busy, in turns");
  add("--product", options.product, "on a GPU, rows and columns of the product to compare with");
  add("--threads", options.threads, "default: all cores");
  add("--warmup", options.warmup, "steps before the first that is timed");
  add("--steps", options.steps, "steps to time, over all rounds");
  add("--rounds", options.rounds, "turns of steps and products");
  app.add_flag("--step-only", options.step_only, "do not time matrix products");
  app.add_flag("--json", options.json, "one JSON object instead of a table");
  app.read(argc, argv);
  if (options.against_float32)
    run_against_float32(options);
  else if (options.busy)
    run_beside_another(options);
  else
    run(options);
  return 0;
}

}  // namespace
}  // namespace lab::bench

int main(int argc, char** argv) { return lab::run_main(argc, argv, lab::bench::main_of_bench); }
