// One training step of several ranks: its input, and the parts from which right and wrong results
// are made.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "common/data/batch.h"
#include "tests/labs/02_gradient_allreduce/verdict_ranks.h"

namespace lab02 {

struct StepCase {
  std::vector<std::vector<lab::TokenBatch>> microbatches;  // per rank
  double max_norm = 0;
  float leftover = 0;  // in every gradient before the first step
  std::string optimizer = "sgd";
  int steps = 1;
  double learning_rate = 0.05;

  size_t ranks() const { return microbatches.size(); }
  /// One parcel a rank.
  std::vector<lab::grading::Parcel> inputs() const;
};

/// Each microbatch's loss and gradients, summed over its targets, at the initial weights.
struct StepParts {
  explicit StepParts(const StepCase& c);

  struct Microbatch {
    size_t rank = 0;
    size_t number = 0;  // within its rank
    double targets = 0;
    double sequences = 0;
    double loss = 0;
    Numbers gradients;
  };
  using Factor = std::function<double(const Microbatch&)>;

  /// Sum over the microbatches of factor * gradients.
  Numbers combine(const Factor& factor) const;
  /// The same of the losses.
  double combine_losses(const Factor& factor) const;
  /// Sum of the magnitudes of the terms of the mean gradient, per element.
  Numbers magnitude() const;
  /// The mean gradient of one rank, before averaging; zeros where it has no target.
  Numbers of_rank(size_t rank) const;
  /// "model.norm.weight, element 3".
  std::string name(size_t i) const;

  std::vector<Microbatch> microbatches;
  Numbers targets;    // per rank
  Numbers sequences;  // per rank
  Numbers counts;     // of microbatches, per rank
  double total = 0;   // targets of all ranks
  Numbers weights;    // initial
  double parameters = 0;
  Numbers begins;
  std::vector<std::string> names;
};

double norm(const Numbers& values);
/// Scales down to `max_norm`; 0: leaves them as they are.
Numbers clipped(Numbers gradients, double max_norm);

}  // namespace lab02
