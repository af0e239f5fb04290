// Lab 09 · options of the program, and --simulate: a step in simulated time. Given.
#pragma once

#include <cstdint>

#include "common/model/config.h"
#include "common/run/options/command_line.h"

namespace lab09 {

struct Options {
  int shard = 3;               // the stage; 0: nothing is in shards, as in lab 02
  double memory_limit_mb = 0;  // of each rank's tensors; 0: none
  bool simulate = false;
  int simulated_ranks = 3;
  double alpha_us = 50;
  double gbit = 1;
  double backward_ms = 400;
};

void add_options(lab::CommandLine& line, Options& options);

/// Draws a step of this model in simulated time, and trains nothing. Returns the exit code.
int show(const Options& options, const lab::LlamaConfig& model, int64_t microbatches);

}  // namespace lab09
