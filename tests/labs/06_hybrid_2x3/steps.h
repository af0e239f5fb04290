// Steps of several pipelines: cases, and how they are judged. For tasks 5 and 6.
#pragma once

#include <string>
#include <vector>

#include "tests/labs/06_hybrid_2x3/grid.h"

namespace lab06 {

struct StepCase {
  lab::grading::TrainingCase training = {};
  int wave = 1;                   // microbatches of the schedule, m
  std::string schedule = "1f1b";  // or "gpipe"

  Grid grid() const { return {training.replicas, training.stages()}; }
  Call call(const std::string& scenario) const;
};

/// What training steps of all labs are tested with, with waves of several sizes; each pipeline
/// without targets in turn; a wave without targets. A pipeline's number of microbatches is a
/// multiple of `multiple`.
std::vector<StepCase> step_cases(const Grid& g, int multiple, uint64_t seed);

/// Each wave runs the schedule on the next microbatches; the messages are those of the schedule, of
/// total_targets, one all_reduce and those of clipping. To be called when the numbers are right.
void expect_order_and_messages(const StepCase& c, size_t step, const std::vector<Parcel>& ranks);

/// Runs the cases one after the other in one job. Judged are the numbers, the order of the
/// microbatches and the messages of every step.
void expect_steps(const std::string& scenario, const std::vector<StepCase>& cases,
                  JobOptions options);

}  // namespace lab06
