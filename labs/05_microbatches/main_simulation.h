// Lab 05 · --simulate: shows a schedule in simulated time, and trains nothing. Given.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "common/pipeline/schedule.h"
#include "common/run/options/command_line.h"

namespace lab05 {

struct Simulation {
  bool wanted = false;
  std::optional<int> stages;           // not given: those of the file, or 3
  std::vector<double> costs = {1, 2};  // forward, backward, message
  std::string svg;                     // file to write; "": none
  bool print = false;                  // the schedule itself, as a file
};

void add_simulation_options(lab::CommandLine& line, Simulation& simulation);

/// How many stages to show: of --schedule `name`, if it is a file.
int stages_to_simulate(const Simulation& simulation, const std::string& name);

/// `name`: of the schedule, for messages. Returns the exit code.
int show(const lab::Schedule& schedule, const std::string& name, const Simulation& simulation);

}  // namespace lab05
