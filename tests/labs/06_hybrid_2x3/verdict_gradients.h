// Judging what compute_gradients leaves, returns and sends.
#pragma once

#include <vector>

#include "tests/labs/06_hybrid_2x3/verdict_case.h"

namespace lab06 {

// Each ends the test as failed unless it is as it should be, on every rank:

/// Of the reference solution, with one or two pipelines, to the last bit.
void expect_gradients(const std::vector<lab::grading::Parcel>& results, const StepCase& c,
                      const Parts& p);
/// A pipeline's part of the mean on its last stage, 0 elsewhere.
void expect_losses(const std::vector<lab::grading::Parcel>& results, const StepCase& c,
                   const Parts& p);
/// Those of the schedule once per wave, those of total_targets, one all_reduce among the replicas.
void expect_messages(const std::vector<lab::grading::Parcel>& results, const StepCase& c);

}  // namespace lab06
