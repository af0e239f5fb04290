// Lab 11 · the options about workers: their number, speed, failures and joins. Given.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "common/comm/server/worker_simulation.h"
#include "common/run/options/command_line.h"
#include "common/run/options/run_plan.h"

namespace lab11 {

struct Workers {
  int count = 4;
  int64_t gradients = 0;  // of an update; 0: as many as workers
  std::string staleness = "0";
  std::string slow = {};  // "1:3": worker 1 takes 3 times as long
  std::string kill = {};  // "2@40": worker 2 is killed after 40 s
  std::string join = {};  // "2@60": a worker of this number joins after 60 s
  double jitter = 0.0;
  double lost = 0.0;          // the probability that a message is lost; it is repeated after 4 s
  bool server = false;        // real processes
  std::string work_for = {};  // this process is a worker of the server at this "address:port"
  int own_number = -1;        // its number; -1: the server chooses
  double pace = 1;            // it takes so many times as long
  std::string bind = "127.0.0.1";     // where the server listens
  double patience = 60;               // seconds without a word until a worker counts as dead
  std::vector<double> link = {0, 0};  // us per message, ns per byte
  int64_t seed = 1;

  /// These throw UsageError for options that make no sense.
  int64_t bound() const;
  std::map<int, double> slowness() const;
  std::vector<lab::SimulatedWorker> schedule() const;
};

void add_worker_options(lab::CommandLine& line, Workers& workers);

/// What follows for the plan: n microbatches in a step.
void settle(const Workers& workers, lab::RunPlan& plan);

}  // namespace lab11
