// Lab 11 · federated rounds. Given.
#pragma once

#include <cstdint>
#include <string>

#include "common/run/options/command_line.h"
#include "common/run/options/run_plan.h"

namespace lab11 {

struct Federated {
  bool wanted = false;
  int clients = 12;
  int per_round = 4;
  int64_t local_steps = 8;
  double outer_lr = 1.0;
  double outer_momentum = 0.0;
  double drop = 0.0;  // the probability that a client of a round does not answer
  std::string shards = "alike";
};

void add_federated_options(lab::CommandLine& line, Federated& federated);
void settle(const Federated& federated, lab::RunPlan& plan);

/// One process plays all clients, one after the other. A step of the plan is a round.
int train_federated(const lab::RunPlan& plan, const Federated& federated);

}  // namespace lab11
