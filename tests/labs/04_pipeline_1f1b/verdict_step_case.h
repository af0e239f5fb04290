// Training steps of a pipeline: their input, and what one process with the whole model makes of it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/data/batch.h"
#include "common/grading/verdict.h"
#include "tests/labs/pipeline/stage_layout.h"

namespace lab04 {

using pipeline_tests::Numbers;

struct StepCase {
  Numbers counts;                               // layers per stage
  std::vector<int64_t> lengths = {10, 10, 10};  // tokens of each row, the rest of ten is padding
  int steps = 1;
  std::string optimizer = "sgd";
  double learning_rate = 0.05;
  double max_norm = 0;
  float leftover = 0;  // in every gradient before the first step

  size_t ranks() const { return counts.size(); }
  /// Another one in each step.
  lab::TokenBatch batch(int step) const;
  std::vector<lab::grading::Parcel> inputs() const;  // of each rank
  lab::grading::Parcel oracle_input() const;
};

/// The oracle's results.
struct StepOracle {
  explicit StepOracle(const StepCase& c);

  /// Of all steps together; an entry as "weights.2".
  Numbers whole(const std::string& entry) const;
  /// The gradients of the first step, before clipping.
  Numbers unclipped() const;

  lab::grading::Parcel parcel;
  pipeline_tests::StageLayout layout;
  lab::grading::Parcel parcel_unclipped;
};

double norm(const Numbers& values);
/// Scales down to `max_norm`, if `own_norm` is larger than that.
Numbers clipped(Numbers gradients, double own_norm, double max_norm);

}  // namespace lab04
