// Lab 09 · options of the program, and --simulate: a step in simulated time. Given.
#include "labs/09_sharded/main_simulation.h"

#include <fmt/format.h>

#include <memory>
#include <optional>
#include <string>

#include "common/comm/diagnosis/flight_recorder.h"
#include "common/comm/sim/simulation.h"
#include "common/error.h"
#include "common/model/llama_stage.h"
#include "common/run/timeline/network_report.h"
#include "labs/09_sharded/sharded.h"

namespace lab09 {

using namespace lab;

namespace {

using Pass = LlamaStage::Pass;

/// One step of a rank. Its computing times are given; your functions send its messages.
class Step {
 public:
  Step(const Options& options, const LlamaConfig& config, ProcessGroup& world)
      : options_(options),
        world_(world),
        model_(config, StageSpan::whole(config), Device::kCpu, 1, WeightMemory::kBound),
        sharded_(make_sharded(model_, world, std::max(options.shard, 1),
                              [](int64_t) { return std::make_unique<Sgd>(); })) {
    for (const Part& part : sharded_.parts) all_ += static_cast<double>(part.size);
  }

  void take(int64_t microbatches) {
    const size_t parts = sharded_.parts.size();
    for (int64_t k = 0; k < microbatches; ++k) {
      for (size_t p = 0; p < parts; ++p)
        compute({Pass::kForward, p, p + 1 < parts ? std::optional(p + 1) : std::nullopt});
      for (size_t p = parts; p-- > 0;)
        compute({Pass::kBackward, p, p > 0 ? std::optional(p - 1) : std::nullopt});
    }
    if (options_.shard == 0) {
      for (const Part& part : sharded_.parts) world_.all_reduce(part.gradient);
      return;
    }
    for (size_t p = 0; p < parts && options_.shard == 1; ++p) reduce_gradient(sharded_, p);
    update(sharded_, 0.0F);
  }

 private:
  void compute(const LlamaStage::PartUse& use) {
    const bool backward = use.pass == Pass::kBackward;
    if (options_.shard == 3) open_values(sharded_, use);
    if (options_.shard >= 2 && backward) open_gradient(sharded_, use.part);
    {
      const ComputeScope scope(world_.recorder(), backward ? OpKind::kBackward : OpKind::kForward,
                               /*microbatch=*/-1);  // a part of one
      // A matrix product takes time in proportion to the matrix; the embedding is only looked up.
      const double share = static_cast<double>(sharded_.parts[use.part].size) / all_;
      const double whole = 1e-3 * options_.backward_ms * (backward ? 1.0 : 0.5);
      if (use.part > 0) world_.advance_clock(share * whole);
    }
    if (options_.shard == 3) close_values(sharded_, use.part);
    if (options_.shard >= 2 && backward) close_gradient(sharded_, use.part);
  }

  const Options& options_;
  ProcessGroup& world_;
  LlamaStage model_;
  Sharded sharded_;
  double all_ = 0;
};

}  // namespace

void add_options(CommandLine& line, Options& options) {
  line.group("Shards");
  line.add("--shard", options.shard, "STAGE",
           "1: the optimizer's state in shards; 2: and gradients; 3: and weights; 0: nothing")
      .within(0, 3)
      .shows_default();
  line.add("--memory-limit", options.memory_limit_mb, "MB",
           "refuse to hold more in the tensors of a rank; 0: no limit")
      .within(0, 1'000'000)
      .shows_default();
  line.group("Simulation");
  line.add_flag("--simulate", options.simulate, "no training: show a step in simulated time");
  line.add("--simulated-ranks", options.simulated_ranks, "N", "how many ranks")
      .within(1, 16)
      .shows_default();
  line.add("--alpha-us", options.alpha_us, "US", "latency of a message")
      .within(0, 1'000'000)
      .shows_default();
  line.add("--gbit", options.gbit, "GBIT", "bandwidth of a link, in Gbit/s").shows_default();
  line.add("--backward-ms", options.backward_ms, "MS",
           "how long the backward pass takes; the forward pass takes half of it")
      .within(0, 1'000'000)
      .shows_default();
}

int show(const Options& options, const LlamaConfig& config, int64_t microbatches) {
  if (!(options.gbit > 0))
    throw UsageError(fmt::format("--gbit {}: a link that sends nothing", options.gbit));
  const CostModel costs{.inside = {.alpha = 1e-6 * options.alpha_us, .beta = 8e-9 / options.gbit}};
  const auto report =
      simulate({.ranks = options.simulated_ranks, .costs = costs},
               [&](ProcessGroup& world) { Step(options, config, world).take(microbatches); });
  for (const std::string& error : report.errors) require(error.empty(), "{}", error);
  print_network_timeline(
      simulated_timeline(report),
      fmt::format("A step in simulated time; ranks: {}, --shard {}, microbatches: {}",
                  options.simulated_ranks, options.shard, microbatches));
  return 0;
}

}  // namespace lab09
