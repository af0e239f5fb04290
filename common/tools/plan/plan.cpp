// plan: finds the dp x pp x m that suits a model and a cluster, by a cost model, without running
// anything.
#include <cmath>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "common/run/checkpoint/config_json.h"
#include "common/run/options/command_line.h"
#include "common/run/options/main_guard.h"
#include "common/tools/plan/plan_report.h"
#include "common/tools/plan/presets.h"
#include "common/tools/plan/search.h"

namespace {

using namespace lab;

/// Options as given on the command line; what is absent comes from the presets.
struct Options {
  std::string model = "workbook";
  std::string config;
  std::optional<int64_t> vocab, length, batch;
  std::string precision;
  std::optional<double> parameter_bytes;
  std::string schedule = "1f1b";
  bool recompute = false;

  std::string device = "cpu";
  int devices = 6;
  std::optional<int> per_host, cores;
  std::optional<double> flops, memory, memory_bandwidth, measured, share_of_peak;
  std::string link, host_link;

  SearchOptions search;
  int rows = 20;
  bool json = false;
};

void add_training_options(CommandLine& app, Options& o) {
  app.group("Training");
  app.add("--model", o.model, "NAME", "workbook, 1b, 7b or 70b").shows_default();
  app.add("--config", o.config, "FILE",
          "instead of --model: a config.json as Hugging Face writes it");
  app.add("--vocab", o.vocab, "N", "another vocabulary");
  app.add("--length", o.length, "N", "tokens of a sequence; default: the context, at most 4096");
  app.add("--batch", o.batch, "N",
          "sequences of a step, all ranks together; default: 12, large models 1024");
  app.add("--precision", o.precision, "NAME",
          "float32 or mixed (bfloat16, sums and copy in float32); default: mixed for large models");
  app.add("--parameter-bytes", o.parameter_bytes, "X",
          "kept per parameter; default: 16 for float32, 18 for mixed");
  app.add("--schedule", o.schedule, "NAME", "1f1b or gpipe").shows_default();
  app.add_flag("--recompute", o.recompute, "keep only the inputs of layers, recompute the rest");
}

void add_cluster_options(CommandLine& app, Options& o) {
  app.group("Devices");
  app.add("--device", o.device, "NAME", "cpu, a100 or h100").shows_default();
  app.add("--devices", o.devices, "N", "how many; for cpu: ranks").shows_default();
  app.add("--per-host", o.per_host, "N", "on one host; default: 8; cpu: all");
  app.add("--cores", o.cores, "N",
          "for cpu: cores that the ranks of a host share; default: this machine's");
  app.add("--flops", o.flops, "X", "TFLOP/s that training achieves on a device (cpu: a core)");
  app.add("--share-of-peak", o.share_of_peak, "X",
          "fraction of a data sheet's TFLOP/s that training achieves; default: 0.5, an assumption");
  app.add(
      "--measured", o.measured, "X",
      "tokens/s of one process with this model and batch on all cores or one device; instead of "
      "--flops");
  app.add("--memory", o.memory, "GB", "of a device; for cpu: of the host");
  app.add("--memory-bandwidth", o.memory_bandwidth, "GB/s", "of a device; for cpu: of the host");
  app.add("--link", o.link, "GB/s,us", "bandwidth and latency between ranks of a host");
  app.add("--host-link", o.host_link, "GB/s,us",
          "between hosts, of one rank while all of them send");
}

void add_output_options(CommandLine& app, Options& o) {
  app.group("");
  app.add("--tp", o.search.tp, "N", "adjacent ranks that divide every layer among them (lab 10)")
      .shows_default();
  app.add("--shard", o.search.shard, "STAGE",
          "what replicas hold in shards (lab 09): 1: the optimizer's state; 2: and gradients; 3: "
          "and "
          "weights")
      .within(0, 3)
      .shows_default();
  app.add("--microbatch", o.search.microbatch, "N", "only with this many sequences per microbatch");
  app.add_flag("--fewer", o.search.fewer, "also meshes of 1/2, 1/3, ... of the devices");
  app.add("--rows", o.rows, "N", "of the table; 0: all").shows_default();
  app.add_flag("--json", o.json, "everything, for programs");
}

Training training_of(const Options& o) {
  Training training = training_preset(o.config.empty() ? o.model : "7b");
  if (!o.config.empty()) training.model = read_config_json(o.config);
  if (o.vocab) training.model.vocab_size = *o.vocab;
  training.length = o.length.value_or(std::min<int64_t>(training.model.context, 4096));
  training.batch = o.batch.value_or(training.batch);
  if (o.precision == "float32")
    training.precision = float32_precision();
  else if (o.precision == "mixed")
    training.precision = mixed_precision();
  else
    require(o.precision.empty(), "there is no precision '{}': float32 or mixed", o.precision);
  training.precision.parameter = o.parameter_bytes.value_or(training.precision.parameter);
  require(o.schedule == "1f1b" || o.schedule == "gpipe", "there is no schedule '{}': 1f1b or gpipe",
          o.schedule);
  training.order = o.schedule == "gpipe" ? PassOrder::kGpipe : PassOrder::kOneFOneB;
  training.recompute = o.recompute;
  training.validate();
  return training;
}

bool is_float32(const Training& training) {
  return training.precision.name == float32_precision().name;
}

/// "25,10": GB/s and microseconds.
Link link_of(const std::string& text, const char* option, Link otherwise) {
  if (text.empty()) return otherwise;
  double bandwidth = 0;
  double latency = 0;
  int length = 0;
  const bool read = std::sscanf(text.c_str(), "%lf,%lf%n", &bandwidth, &latency, &length) == 2 &&
                    static_cast<size_t>(length) == text.size();
  require(
      read && std::isfinite(bandwidth) && bandwidth > 0 && std::isfinite(latency) && latency >= 0,
      "{} '{}': give GB/s and microseconds, such as 25,10", option, text);
  return {1e9 * bandwidth, 1e-6 * latency};
}

/// Several hosts with CPUs: every rank has an equal part of its host.
void divide_host(Cluster& cluster) {
  require(
      cluster.per_host >= 1 && cluster.per_host <= cluster.cores,
      "{} ranks on each of several hosts with {} cores: more ranks than cores are planned for on "
      "one machine only",
      cluster.per_host, cluster.cores);
  const int threads = cluster.cores / cluster.per_host;
  cluster.device.flops *= threads;
  cluster.device.memory /= cluster.per_host;
  cluster.device.memory_bandwidth /= cluster.per_host;
  cluster.cores = 0;
}

Cluster cluster_of(const Options& o, const Training& training) {
  const DevicePreset preset = device_preset(o.device);
  const bool shares = o.device == "cpu";
  require(shares || !o.cores, "--cores is for --device cpu");
  require(preset.data_sheet || !o.share_of_peak, "--share-of-peak is for data sheets: {} has none",
          o.device);
  require(
      int{o.flops.has_value()} + int{o.measured.has_value()} + int{o.share_of_peak.has_value()} <=
          1,
      "--flops, --measured and --share-of-peak say the same thing: give one of them");
  const double share = o.share_of_peak.value_or(0.5);
  require(share > 0 && share <= 1, "--share-of-peak {}: give a number from 0 to 1", share);

  Cluster cluster{.device = preset.device,
                  .devices = o.devices,
                  .per_host = o.per_host.value_or(preset.per_host),
                  .inside = link_of(o.link, "--link", preset.inside),
                  .between = link_of(o.host_link, "--host-link", preset.between)};
  if (preset.data_sheet && is_float32(training)) cluster.device.flops = preset.float32_flops;
  if (preset.data_sheet) cluster.device.flops *= share;
  if (o.flops) cluster.device.flops = 1e12 * *o.flops;
  if (o.memory) cluster.device.memory = 1e9 * *o.memory;
  if (o.memory_bandwidth) cluster.device.memory_bandwidth = 1e9 * *o.memory_bandwidth;
  if (shares) {
    cluster.cores = o.cores.value_or(static_cast<int>(std::thread::hardware_concurrency()));
    require(cluster.cores >= 1 && cluster.cores <= 4096, "--cores {}: give a number from 1 to 4096",
            cluster.cores);
  }
  if (o.measured) cluster.device.flops = calibrated_flops(training, cluster, *o.measured);
  if (shares && cluster.devices > cluster.per_host) divide_host(cluster);
  cluster.validate();
  return cluster;
}

/// Which of the figures were not measured here.
void print_caveat(const Options& o, const Training& training) {
  const bool own_rate = o.flops || o.measured;
  if (o.device == "cpu") {
    if (!own_rate)
      fmt::print("         a core as in docs/planning.md; --measured RATE makes it yours\n");
    return;
  }
  const std::string rate = own_rate ? ""
                                    : fmt::format("{:.0f} % of its {} TFLOP/s (an assumption), ",
                                                  100 * o.share_of_peak.value_or(0.5),
                                                  is_float32(training) ? "float32" : "bfloat16");
  fmt::print("         from the data sheet: {}memory and links; nothing of it was measured\n",
             rate);
}

int run_plan(int argc, char** argv) {
  Options options;
  CommandLine app(
      "Estimates memory, bubble, communication and tokens/s of every dp x pp x m. Formulas: "
      "docs/planning.md.");
  add_training_options(app, options);
  add_cluster_options(app, options);
  add_output_options(app, options);
  app.read(argc, argv);
  try {
    require(options.rows >= 0, "--rows {}: give a number of at least 0", options.rows);
    const Training training = training_of(options);
    const Cluster cluster = cluster_of(options, training);
    const std::vector<Estimate> ranked = search(training, cluster, options.search);
    if (options.json) {
      fmt::print("{}", plan_json(training, cluster, ranked));
      return 0;
    }
    fmt::print("{}", plan_header(training, cluster));
    print_caveat(options, training);
    fmt::print("\n{}\n{}\n", plan_table(ranked, options.rows), verdict(ranked));
  } catch (const Error& error) {
    throw UsageError(error.what());
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) { return lab::run_main(argc, argv, run_plan); }
