// Lab 08 · options of the program, and --simulate: a step in simulated time. Given.
#pragma once

#include <cstdint>

#include "common/model/config.h"
#include "common/run/options/command_line.h"

namespace lab08 {

/// How large buckets may be.
struct Capacities {
  int64_t cap_kb = 1024;
  int64_t first_cap_kb = 256;

  int64_t cap_bytes() const { return cap_kb * 1000; }
  int64_t first_cap_bytes() const { return first_cap_kb * 1000; }
};

struct Simulation {
  bool wanted = false;
  int ranks = 3;
  double alpha_us = 50;
  double gbit = 1;
  double backward_ms = 400;
};

void add_options(lab::CommandLine& line, Capacities& capacities, bool& timeline,
                 Simulation& simulation);

/// Draws the backward pass of a step of this model with your buckets, and trains nothing. Returns
/// the exit code.
int show(const Simulation& simulation, const Capacities& capacities, const lab::LlamaConfig& model);

}  // namespace lab08
