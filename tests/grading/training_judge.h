// Judging training steps by a lab's contract.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tests/grading/training_mistakes.h"
#include "tests/grading/verdict.h"

namespace lab::grading {

/// Ends the test as failed unless every rank took every step of the case as the contract says: one
/// update with the right gradients, the right loss, nothing left in flight, and replicas that stay
/// the same. `ranks`: what record_steps left. Messages are for the caller to judge.
void judge_steps(const TrainingCase& training, const std::vector<Parcel>& ranks,
                 const StepContract& contract);

/// Runs `scenario` on all cases, one after the other in one job, and judges each.
void judge_cases(const std::vector<TrainingCase>& cases, const std::string& scenario,
                 const JobOptions& options,
                 const std::function<void(const TrainingCase&, const std::vector<Parcel>&)>& judge);

/// Draws cases within the limits, from this task's `seed` and scenario_seed(), for
/// judge_cases.
void judge_training(
    const CaseLimits& limits, uint64_t seed, const std::string& scenario, const JobOptions& options,
    const std::function<void(const TrainingCase&, const std::vector<Parcel>&)>& judge);

}  // namespace lab::grading
