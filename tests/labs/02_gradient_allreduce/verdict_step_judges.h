// Judging what train_step did on every rank.
#pragma once

#include <vector>

#include "tests/labs/02_gradient_allreduce/verdict_step_case.h"

namespace lab02 {

/// Relative to the sum of the absolute terms, over microbatches and ranks, of each element; and to
/// the largest gradient of the model, since an element may be a difference of large numbers inside
/// a microbatch, where the place of a factor moves the rounding.
inline constexpr double kTolerance = 1e-6;

/// What the optimizer of rank `rank` should get in the first step.
lab::grading::Expected expected_gradients(const StepParts& p, const StepCase& c, size_t rank,
                                          const lab::grading::Parcel& result);

// Each ends the test as failed unless it is as it should be:

/// One update per rank and step, with the given learning rate.
void expect_one_update(const std::vector<lab::grading::Parcel>& results, const StepCase& c);
/// What the optimizers got in the first step.
void expect_gradients(const std::vector<lab::grading::Parcel>& results, const StepParts& p,
                      const StepCase& c);
/// What train_step returned in the first step.
void expect_own_losses(const std::vector<lab::grading::Parcel>& results, const StepParts& p);
/// Weights, and the state of Adam, after each step: the same on every rank.
void expect_replicas(const std::vector<lab::grading::Parcel>& results, const StepCase& c);
/// The change of the weights since the start, after each step, compared with that of `right`.
void expect_displacement(const std::vector<lab::grading::Parcel>& results,
                         const lab::grading::Parcel& right, const StepParts& p, const StepCase& c);
/// Two all_reduces a step, of the gradients and one number.
void expect_step_traffic(const std::vector<lab::grading::Parcel>& results, const StepParts& p,
                         const StepCase& c);

}  // namespace lab02
