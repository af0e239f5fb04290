// Lab 10 · what a rank sends in a step, and --simulate: a step in simulated time. Given.
#include "labs/10_tensor_parallel/main_traffic.h"

#include <fmt/format.h>

#include <bit>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "common/comm/sim/simulation.h"
#include "common/error.h"
#include "common/format.h"
#include "labs/10_tensor_parallel/passes.h"

namespace lab10 {

using namespace lab;

namespace {

/// Passes that also take simulated time: a slice of a layer takes a part of its time.
class TimedPasses final : public Passes {
 public:
  TimedPasses(const LlamaConfig& config, ProcessGroup& ranks, double layer_seconds)
      : Passes(vocabulary_of(config, ranks), ranks),
        ranks_(ranks),
        seconds_(layer_seconds / ranks.size()) {}

  void layer_forward(const LayerShape& shape, const LayerWeights& weights,
                     const Tensor& rope_angles, const Tensor& input, LayerActivations& kept,
                     const Tensor& output) override {
    ranks_.advance_clock(seconds_);
    Passes::layer_forward(shape, weights, rope_angles, input, kept, output);
  }
  void layer_backward(const LayerShape& shape, const LayerWeights& weights,
                      const Tensor& rope_angles, const Tensor& input, LayerActivations& kept,
                      const Tensor& gradient) override {
    ranks_.advance_clock(2 * seconds_);
    Passes::layer_backward(shape, weights, rope_angles, input, kept, gradient);
  }

 private:
  ProcessGroup& ranks_;
  double seconds_;
};

/// A forward and a backward pass on `tp` ranks.
SimTimes step_times(const LlamaConfig& config, int64_t batch, int tp, double layer_seconds,
                    const CostModel& costs) {
  TokenBatch tokens{.batch = batch, .length = config.context, .tokens = {}};
  for (int64_t i = 0; i < batch * config.context; ++i)
    tokens.tokens.push_back(static_cast<int32_t>(i % config.vocab_size));
  const auto report = simulate({.ranks = tp, .costs = costs}, [&](ProcessGroup& ranks) {
    const TensorSlice slice{.rank = ranks.rank(), .ranks = ranks.size()};
    LlamaStage stage(config, StageSpan::whole(config), slice,
                     std::make_shared<TimedPasses>(config, ranks, layer_seconds), /*seed=*/1);
    const Tensor logits = stage.forward(tokens);
    causal_lm_loss(logits, tokens, tokens.target_count(), vocabulary_of(config, ranks), ranks);
    stage.backward(logits);
  });
  for (const std::string& error : report.errors) require(error.empty(), "{}", error);
  return *report.times;
}

}  // namespace

void add_options(CommandLine& line, Simulation& simulation) {
  line.group("Simulation");
  line.add_flag("--simulate", simulation.wanted,
                "no training: how long a step takes on 1, 2, 3 ... ranks, in simulated time");
  line.add("--alpha-us", simulation.alpha_us, "US", "latency of a message").shows_default();
  line.add("--inside-gbit", simulation.inside_gbit, "GBIT", "bandwidth within a host, in Gbit/s")
      .shows_default();
  line.add("--between-gbit", simulation.between_gbit, "GBIT", "bandwidth between two hosts")
      .shows_default();
  line.add("--layer-ms", simulation.layer_ms, "MS", "forward pass of a whole layer")
      .shows_default();
}

void print_traffic(const FlightRecorder& recorder, const TimeWindow& step) {
  std::map<uint32_t, std::string> names;
  std::set<uint32_t> alone;  // groups of one rank send nothing
  for (const GroupRecord& group : recorder.snapshot().groups) {
    names[group.id] = group.name;
    if (std::has_single_bit(group.members)) alone.insert(group.id);
  }
  std::map<std::pair<uint32_t, OpKind>, Traffic> traffic;
  for (const OpRecord& record : recorder.history()) {
    if (record.posted_ns < step.begin_ns || record.posted_ns >= step.end_ns) continue;
    if (!is_message(record.kind) && !is_collective(record.kind)) continue;
    if (alone.contains(record.group)) continue;
    Traffic& sum = traffic[{record.group, record.kind}];
    ++sum.operations;
    sum.bytes += record.bytes;
  }
  if (traffic.empty()) return;
  fmt::print("\nmessages and collectives of rank 0 in the last step\n");
  for (const auto& [what, sum] : traffic)
    fmt::print("  {:<28} {:>5} x {:<14} {:>14} bytes\n", names[what.first], sum.operations,
               op_name(what.second), format_count(static_cast<int64_t>(sum.bytes)));
}

int show(const Simulation& simulation, const RunPlan& plan) {
  if (!(simulation.inside_gbit > 0 && simulation.between_gbit > 0 && simulation.layer_ms >= 0 &&
        simulation.alpha_us >= 0))
    throw UsageError("--simulate: bandwidths must be positive, times not negative");
  const LlamaConfig& config = plan.model;
  CostModel costs{
      .inside = {.alpha = 1e-6 * simulation.alpha_us, .beta = 8e-9 / simulation.inside_gbit},
      .between = {.alpha = 1e-6 * simulation.alpha_us, .beta = 8e-9 / simulation.between_gbit}};
  fmt::print(
      "Simulated time of a forward and a backward pass of {} x {} tokens: the computation alone,\n"
      "then all of it on one host and on two\n\n",
      plan.batch, config.context);
  fmt::print("{:>3} {:>16} {:>16} {:>16} {:>16}\n", "tp", "weights a rank", "computation, ms",
             "1 host, ms", "2 hosts, ms");
  for (int tp = 1; tp <= config.heads; ++tp) {
    if (config.heads % tp != 0 || config.kv_heads % tp != 0 || config.hidden_dim % tp != 0)
      continue;
    const double layer_seconds = 1e-3 * simulation.layer_ms;
    const auto milliseconds = [&](int ranks_per_host) {
      costs.ranks_per_host = ranks_per_host;
      return 1e3 * step_times(config, plan.batch, tp, layer_seconds, costs).makespan;
    };
    const double compute = 3 * simulation.layer_ms * static_cast<double>(config.layers) / tp;
    fmt::print("{:>3} {:>16} {:>16.2f} {:>16.2f}", tp,
               format_count(parameter_count(slice_config(config, {.rank = 0, .ranks = tp}))),
               compute, milliseconds(0));
    fmt::print("{}\n", tp == 1 ? "" : fmt::format(" {:>16.2f}", milliseconds((tp + 1) / 2)));
  }
  return 0;
}

}  // namespace lab10
