// Lab 07 · --simulate: shows an all-reduce in simulated time, and trains nothing. Given.
#include "labs/07_allreduce/main_simulation.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <optional>

#include "common/comm/sim/simulation.h"
#include "common/error.h"
#include "common/format.h"
#include "common/io/files.h"
#include "common/io/terminal.h"
#include "common/pipeline/drawing/draw.h"
#include "common/run/timeline/recorded_timeline.h"
#include "common/todo.h"
#include "labs/07_allreduce/algorithms.h"

namespace lab07 {

using namespace lab;

namespace {

struct Run {
  SimulationReport report;
  int64_t begin_ns = 0;  // of the all-reduce itself
  double seconds = 0;
};

/// One all-reduce on simulated ranks. Throws Error if it does not come to its end, NotImplemented
/// if nobody has written it yet.
Run simulate_one(Algorithm algorithm, int ranks, int64_t elements, const CostModel& costs) {
  Run run;
  bool is_written = true;
  run.report = simulate({.ranks = ranks, .costs = costs}, [&](ProcessGroup& world) {
    const Tensor tensor = Tensor::zeros({elements});
    const auto reduce = [&](Hosts* hosts) {
      run.begin_ns = world.recorder().snapshot().taken_ns;  // the same on all ranks
      all_reduce(algorithm, tensor, ReduceOp::kSum, world, hosts);
    };
    try {
      if (algorithm != Algorithm::kHierarchical) return reduce(nullptr);
      Hosts hosts = make_hosts(world, costs.ranks_per_host);
      reduce(&hosts);
    } catch (const NotImplemented&) {
      is_written = false;
      throw;
    }
  });
  if (run.report.diagnosis) fail("{}", run.report.diagnosis->text());
  for (const std::string& error : run.report.errors)
    if (!error.empty()) {
      if (!is_written) throw NotImplemented(error);
      fail("{}", error);
    }
  run.seconds = run.report.times->makespan - 1e-9 * static_cast<double>(run.begin_ns - 1);
  return run;
}

/// What `function` returns; nothing if it needs a task that nobody has written yet.
template <typename Function>
auto if_written(const Function& function) -> std::optional<decltype(function())> {
  try {
    return function();
  } catch (const NotImplemented&) {
    return std::nullopt;
  }
}

void print_table(const std::optional<Choice>& choice, int ranks, int64_t elements,
                 const CostModel& costs) {
  const auto microseconds = [](const std::optional<double>& seconds) {
    return seconds ? fmt::format("{:.{}f}", 1e6 * *seconds, *seconds < 1e-5 ? 3 : 1)
                   : "not written";
  };
  fmt::print("\n{:<14} {:>14} {:>14}\n", "", "predicted us", "simulated us");
  for (size_t i = 0; i < kAlgorithms; ++i) {
    const auto algorithm = static_cast<Algorithm>(i);
    const auto simulated =
        if_written([&] { return simulate_one(algorithm, ranks, elements, costs).seconds; });
    fmt::print("{:<14} {:>14} {:>14}{}\n", kNames.at(i),
               microseconds(choice ? std::optional(choice->seconds.at(i)) : std::nullopt),
               microseconds(simulated),
               choice && algorithm == choice->best ? "  predicted to be the fastest" : "");
  }
}

/// The sizes, in powers of two, at which `choose` changes its preference.
void print_choices(int ranks, const CostModel& costs) {
  constexpr int64_t kMost = int64_t{1} << 28;  // elements: 1 GiB
  fmt::print("\npredicted to be the fastest, by size in powers of two:");
  const char* before = nullptr;
  for (int64_t elements = 1; elements <= kMost; elements *= 2) {
    const char* best = kNames.at(static_cast<size_t>(choose(ranks, elements, costs).best));
    if (best != before)
      fmt::print("{} {} from {} bytes", before == nullptr ? "" : ",", best, 4 * elements);
    before = best;
  }
  fmt::print("\n");
}

}  // namespace

void add_simulation_options(CommandLine& line, Simulation& simulation) {
  line.group("Simulation");
  line.add_flag("--simulate", simulation.wanted,
                "no training: show an all-reduce in simulated time");
  line.add("--elements", simulation.elements, "N", "elements of the tensor; default: 3000")
      .within(0, int64_t{1} << 24);
  line.add("--inside", simulation.inside, "A,B",
           "cost of a message inside a host: A us + B ns per byte; default: 5,1")
      .comma_separated(2, 2);
  line.add("--between", simulation.between, "A,B", "the same between hosts; default: 50,10")
      .comma_separated(2, 2);
  line.add("--gamma", simulation.gamma, "G", "an addition: ns; default: 1");
  line.add("--svg", simulation.svg, "FILE", "write the figure there, too");
}

int show(Algorithm algorithm, int ranks, int hosts, const Simulation& simulation) {
  require(ranks % hosts == 0, "--hosts {}: {} ranks cannot be divided equally", hosts, ranks);
  const auto link = [](const std::vector<double>& values) {
    require(values[0] >= 0 && values[1] >= 0, "the costs of a message must not be negative");
    return LinkCost{.alpha = 1e-6 * values[0], .beta = 1e-9 * values[1]};
  };
  require(simulation.gamma >= 0, "--gamma {}: it must not be negative", simulation.gamma);
  const CostModel costs{.inside = link(simulation.inside),
                        .between = link(simulation.between),
                        .ranks_per_host = ranks / hosts,
                        .gamma = 1e-9 * simulation.gamma};
  const Run run = simulate_one(algorithm, ranks, simulation.elements, costs);
  const Timeline timeline = simulated_timeline(run.report, run.begin_ns);
  fmt::print("{} of {} on {}, {} per host\n\n", kNames.at(static_cast<size_t>(algorithm)),
             counted(simulation.elements, "element"), counted(ranks, "rank"), ranks / hosts);
  fmt::print("{}", draw_grid(timeline, {.color = wants_color(STDOUT_FILENO)}));
  if (!simulation.svg.empty()) write_file(simulation.svg, draw_svg(timeline));
  const auto choice = if_written([&] { return choose(ranks, simulation.elements, costs); });
  print_table(choice, ranks, simulation.elements, costs);
  if (choice) print_choices(ranks, costs);
  return 0;
}

}  // namespace lab07
