// Lab 05 · --simulate: shows a schedule in simulated time, and trains nothing. Given.
#include "labs/05_microbatches/main_simulation.h"

#include <fmt/format.h>
#include <unistd.h>

#include "common/io/files.h"
#include "common/io/terminal.h"
#include "common/pipeline/drawing/draw.h"
#include "common/pipeline/simulate.h"
#include "common/pipeline/validate.h"

namespace lab05 {

using namespace lab;

void add_simulation_options(CommandLine& line, Simulation& simulation) {
  line.group("Simulation");
  line.add_flag("--simulate", simulation.wanted,
                "no training: show the schedule in simulated time, without messages unless "
                "--messages says which");
  line.add("--stages", simulation.stages, "P", "number of stages; default: as in the file, or 3")
      .within(1, 64);
  line.add("--costs", simulation.costs, "F,B[,M]",
           "costs of a forward, a backward, a message; default: 1,2,0")
      .comma_separated(2, 3);
  line.add("--svg", simulation.svg, "FILE", "write the figure there, too");
  line.add_flag("--print", simulation.print, "print it as a schedule file instead");
}

int stages_to_simulate(const Simulation& simulation, const std::string& name) {
  if (simulation.stages) return *simulation.stages;
  return name == "gpipe" || name == "1f1b" ? 3 : read_schedule(name).stage_count();
}

int show(const Schedule& schedule, const std::string& name, const Simulation& simulation) {
  if (simulation.print) {
    fmt::print("{}", to_text(schedule));
    return 0;
  }
  require_valid(schedule, "schedule " + name);
  const std::vector<double>& costs = simulation.costs;
  const Timeline timeline = simulate(
      schedule,
      {{.forward = costs[0], .backward = costs[1], .message = costs.size() > 2 ? costs[2] : 0.0}});
  fmt::print("{}", draw_grid(timeline, {.color = wants_color(STDOUT_FILENO)}));
  fmt::print("idle by theory, (p-1)/(m+p-1): {:.1f} %\n",
             100 * ideal_bubble(schedule.stage_count(), schedule.microbatches));
  if (!simulation.svg.empty()) write_file(simulation.svg, draw_svg(timeline));
  return 0;
}

}  // namespace lab05
