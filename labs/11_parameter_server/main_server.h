// Lab 11 · the server and its workers as processes, over TCP. Given.
#pragma once

#include "common/run/options/run_plan.h"
#include "labs/11_parameter_server/main_workers.h"

namespace lab11 {

/// The server. Starts the workers, and kills them as the options say. Returns the exit code.
int serve(const lab::RunPlan& plan, const Workers& workers);

/// A worker of workers.work_for.
int work(const lab::RunPlan& plan, const Workers& workers);

}  // namespace lab11
