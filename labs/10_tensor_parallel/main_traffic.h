// Lab 10 · what a rank sends in a step, and --simulate: a step in simulated time. Given.
#pragma once

#include "common/comm/process_group.h"
#include "common/run/options/command_line.h"
#include "common/run/options/run_plan.h"
#include "common/run/timeline/recorded_timeline.h"

namespace lab10 {

struct Simulation {
  bool wanted = false;
  double alpha_us = 10;
  double inside_gbit = 400;
  double between_gbit = 10;
  double layer_ms = 2;
};

void add_options(lab::CommandLine& line, Simulation& simulation);

/// Prints what this rank sent in a step: by group, the number of operations and their bytes.
void print_traffic(const lab::FlightRecorder& recorder, const lab::TimeWindow& step);

/// For every number of ranks that divides the plan's model: how long a step takes on one host and
/// on two, in simulated time. Trains nothing. Returns the exit code.
int show(const Simulation& simulation, const lab::RunPlan& plan);

}  // namespace lab10
