// Lab 08 · options of the program, and --simulate: a step in simulated time. Given.
#include "labs/08_overlap/main_simulation.h"

#include <fmt/format.h>

#include <string>
#include <vector>

#include "common/comm/diagnosis/flight_recorder.h"
#include "common/comm/sim/simulation.h"
#include "common/error.h"
#include "common/model/llama_stage.h"
#include "common/run/timeline/network_report.h"
#include "labs/08_overlap/overlap.h"

namespace lab08 {

using namespace lab;

namespace {

/// "model.layers.3.mlp.up_proj.weight" is of layer 3; all else of none.
int layer_of(const std::string& name) {
  const std::string prefix = "model.layers.";
  return name.starts_with(prefix) ? std::stoi(name.substr(prefix.size())) : -1;
}

}  // namespace

void add_options(CommandLine& line, Capacities& capacities, bool& timeline,
                 Simulation& simulation) {
  line.group("Overlap");
  line.add("--bucket-kb", capacities.cap_kb, "KB", "capacity of a bucket; 0: each gradient alone")
      .within(0, 1'000'000)
      .shows_default();
  line.add("--first-bucket-kb", capacities.first_cap_kb, "KB", "capacity of the first bucket")
      .within(0, 1'000'000)
      .shows_default();
  line.add_flag("--timeline", timeline,
                "show what every rank did in the last step; timeline.svg and trace.json in --out");
  line.group("Simulation");
  line.add_flag("--simulate", simulation.wanted,
                "no training: show a backward pass with your buckets in simulated time");
  line.add("--simulated-ranks", simulation.ranks, "N", "how many ranks")
      .within(1, 64)
      .shows_default();
  line.add("--alpha-us", simulation.alpha_us, "US", "latency of a message")
      .within(0, 1'000'000)
      .shows_default();
  line.add("--gbit", simulation.gbit, "GBIT", "bandwidth of a link, in Gbit/s").shows_default();
  line.add("--backward-ms", simulation.backward_ms, "MS", "how long the backward pass takes")
      .within(0, 1'000'000)
      .shows_default();
}

int show(const Simulation& simulation, const Capacities& capacities, const LlamaConfig& config) {
  if (!(simulation.gbit > 0))
    throw UsageError(fmt::format("--gbit {}: a link that sends nothing", simulation.gbit));
  const LlamaStage model(config, StageSpan::whole(config), Device::kCpu, 1);
  const std::vector<Parameter>& parameters = model.named_parameters();
  // A matrix product takes time in proportion to the matrix; the embedding is only looked up.
  double work = 0;
  for (size_t p = 1; p < parameters.size(); ++p)
    work += static_cast<double>(parameters[p].value.numel());
  const CostModel costs{
      .inside = {.alpha = 1e-6 * simulation.alpha_us, .beta = 8e-9 / simulation.gbit}};
  size_t buckets = 0;
  const auto report =
      simulate({.ranks = simulation.ranks, .costs = costs}, [&](ProcessGroup& world) {
        Reducer reducer =
            make_reducer(model, capacities.cap_bytes(), capacities.first_cap_bytes(), world);
        // Ranks share the model; each needs gradients of its own.
        for (Tensor& gradient : reducer.gradients) gradient = Tensor::zeros(gradient.shape());
        buckets = reducer.buckets.size();
        begin(reducer, 1);
        for (size_t p = parameters.size(); p-- > 0;) {
          {
            const ComputeScope scope(world.recorder(), OpKind::kBackward,
                                     layer_of(parameters[p].name));
            const double share = static_cast<double>(parameters[p].value.numel()) / work;
            if (p > 0) world.advance_clock(1e-3 * simulation.backward_ms * share);
          }
          ready(reducer, p);
        }
        finish(reducer);
      });
  for (const std::string& error : report.errors) require(error.empty(), "{}", error);
  print_network_timeline(simulated_timeline(report),
                         fmt::format("A backward pass in simulated time; ranks: {}, buckets: {}",
                                     simulation.ranks, buckets));
  return 0;
}

}  // namespace lab08
