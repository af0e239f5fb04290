// Lab 11 · training with workers in simulated time, and what is shown of it. Given.
#pragma once

#include "common/run/options/run_plan.h"
#include "labs/11_parameter_server/main_workers.h"

namespace lab11 {

/// One process computes all gradients. Which worker computes which, and when, is simulated. Returns
/// the exit code.
int train_simulated(const lab::RunPlan& plan, const Workers& workers);

/// The same data with s = 0, with the bound (4 if that is 0), and asynchronously: losses against
/// time and against gradients, as a table and as compare.html in the run's folder.
int compare(const lab::RunPlan& plan, const Workers& workers);

/// One step's messages through one server, through several, and around a ring: predicted and
/// simulated. Trains nothing.
int show_traffic(const Workers& workers);

}  // namespace lab11
