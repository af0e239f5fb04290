// Judging what train_step did on every rank.
#pragma once

#include <string>
#include <vector>

#include "tests/labs/04_pipeline_1f1b/verdict_step_case.h"

namespace lab04 {

/// What the last stage gave its loss as total_targets in a step. Another number than that of the
/// batch is no mistake in itself, since the division may come later: it explains wrong numbers.
struct Divisor {
  Divisor(const std::vector<lab::grading::Parcel>& results, const StepCase& c, int step);

  /// By how much loss and gradients are too large, if nothing else makes up for it.
  double factor() const { return right / got; }

  double got;
  double right;
  std::string words;  // about the difference; empty if there is none
};

// Each ends the test as failed unless it is as it should be:

/// One update per rank and step, with the given learning rate, after the backward pass.
void expect_one_update(const std::vector<lab::grading::Parcel>& results, const StepCase& c);
/// One call of the loss in each step, on the last stage.
void expect_one_loss(const std::vector<lab::grading::Parcel>& results, const StepCase& c);
/// What the optimizers got in the first step.
void expect_gradients(const std::vector<lab::grading::Parcel>& results, const StepOracle& oracle,
                      const StepCase& c);
/// What train_step returned in each step.
void expect_losses(const std::vector<lab::grading::Parcel>& results, const StepOracle& oracle,
                   const StepCase& c);
/// The change of the weights since the start, after each step.
void expect_displacement(const std::vector<lab::grading::Parcel>& results, const StepOracle& oracle,
                         const StepCase& c);
/// Notes where loss, gradients or weights of any step differ from the oracle's in their last bits.
void confirm_step_bits(const std::vector<lab::grading::Parcel>& results, const StepOracle& oracle,
                       const StepCase& c);

}  // namespace lab04
