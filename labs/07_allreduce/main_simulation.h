// Lab 07 · --simulate: shows an all-reduce in simulated time, and trains nothing. Given.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/run/options/command_line.h"
#include "labs/07_allreduce/allreduce.h"

namespace lab07 {

struct Simulation {
  bool wanted = false;
  int64_t elements = 3000;
  std::vector<double> inside = {5, 1};     // us per message, ns per byte
  std::vector<double> between = {50, 10};  // the same
  double gamma = 1;                        // ns per element
  std::string svg;                         // file to write; "": none
};

void add_simulation_options(lab::CommandLine& line, Simulation& simulation);

/// Draws `algorithm`, and compares the predicted times of all of them with the simulated ones.
/// Returns the exit code.
int show(Algorithm algorithm, int ranks, int hosts, const Simulation& simulation);

}  // namespace lab07
