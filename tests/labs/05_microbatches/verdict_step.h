// One training step of a pipeline: its input, and how it is judged on every rank.
#pragma once

#include <string>
#include <vector>

#include "common/pipeline/schedule.h"
#include "tests/labs/05_microbatches/verdict_parts.h"

namespace lab05 {

struct StepCase {
  lab::Schedule schedule;                     // a program
  std::vector<lab::TokenBatch> microbatches;  // of all waves
  double max_norm = 0;
  float leftover = 0;  // in every gradient before the first step
  std::string optimizer = "sgd";
  int steps = 1;
  double learning_rate = 0.05;

  size_t ranks() const { return schedule.stages.size(); }
  size_t waves() const { return microbatches.size() / static_cast<size_t>(schedule.microbatches); }
  Parts parts() const { return {microbatches, targets_of(microbatches)}; }
  /// One parcel a rank.
  std::vector<lab::grading::Parcel> inputs() const;
  /// One parcel for one process.
  lab::grading::Parcel as_one_process() const;
};

// Each ends the test as failed unless it is as it should be:

/// One update per rank and step, with the given learning rate.
void expect_one_update(const std::vector<lab::grading::Parcel>& results, const StepCase& c);
/// What the optimizers got in the first step.
void expect_gradients(const std::vector<lab::grading::Parcel>& results, const StepCase& c,
                      const Parts& p);
/// What train_step returned in the first step.
void expect_mean_loss(const std::vector<lab::grading::Parcel>& results, const StepCase& c,
                      const Parts& p);
/// The change of the weights since the start, after each step, compared with that of one process.
/// Of the reference solution, weights, and the loss of a single wave, to the last bit.
void expect_weights(const std::vector<lab::grading::Parcel>& results, const StepCase& c,
                    const Parts& p);
/// The messages of the schedule once per wave, those of clipping, and no other.
void expect_messages(const std::vector<lab::grading::Parcel>& results, const StepCase& c);

}  // namespace lab05
