// What a training program of several ranks does once its plan is settled.
#pragma once

#include <functional>

#include "common/run/launch/job.h"
#include "common/run/options/run_plan.h"

namespace lab {

/// If the plan says so, starts the ranks, after `check` has reported what all of them would refuse;
/// otherwise joins the job as one rank, and trains. Returns the exit code for main.
///
/// When a job that was started here fails (a rank is killed, or stops with an error other than a
/// usage error), it is restarted at most `plan.max_restarts` times, from its newest checkpoint, or
/// from the start if there is none yet. Not after Ctrl-C.
int run_program(const RunPlan& plan, int argc, const char* const* argv,
                const std::function<int(Job&, const RunPlan&)>& train,
                const std::function<void(const RunPlan&)>& check = {});

}  // namespace lab
