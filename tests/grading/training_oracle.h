// The oracle of training steps, the same for all labs.
//
// A step of any lab is a sum over microbatches of weight * gradient, clipped, and handed to the
// optimizer. The oracle computes each microbatch's gradient in one process, at the weights that the
// judged ranks really had when the step began; so every step is judged separately, and errors do
// not grow.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tests/grading/compare.h"
#include "tests/grading/training_case.h"

namespace lab::grading {

/// One microbatch, at some weights.
struct MicrobatchPart {
  size_t replica = 0;
  size_t number = 0;  // within its replica
  double targets = 0;
  double sequences = 0;  // B
  double positions = 0;  // B·(T-1): the targets, if padding were one
  double loss = 0;       // summed over the targets
  Numbers gradient;      // likewise; packed, of the whole model
  Numbers early;         // as it is if gradients() is asked for before the passes; of a tied head
};

/// Some microbatches of a step: those of all replicas, or of one.
struct StepParts {
  size_t weights = 0;  // of the whole model
  std::vector<MicrobatchPart> microbatches = {};
  double targets = 0;

  using Weight = std::function<double(const MicrobatchPart&)>;
  Numbers combine(const Weight& weight) const;
  double combine_losses(const Weight& weight) const;
  Numbers mean() const;       // of all targets; 0 where there is none
  Numbers magnitude() const;  // sum of the magnitudes of the mean's terms
  double targets_of(size_t replica) const;
  double count_of(size_t replica) const;
};

class TrainingOracle {
 public:
  explicit TrainingOracle(const TrainingCase& training);

  /// `weights[replica]`: packed, of the whole model.
  StepParts parts(size_t step, const std::vector<Numbers>& weights);
  /// An estimate of how far other roundings move an element of parts.mean(), at most. A third of
  /// everything has others in the backward pass, and weights that are off by a rounding have others
  /// in the forward pass. Where a gradient is a small difference of large numbers, they are more
  /// than a fixed part of it. Takes twice as long as parts().
  double rounding(size_t step, const std::vector<Numbers>& weights, const StepParts& parts);
  const Numbers& initial_weights() const { return initial_weights_; }
  /// The loss and the gradient of one process that takes the microbatches one after the other: with
  /// the bits that a pipeline of one replica is promised to have.
  struct Exact {
    double loss = 0;
    Numbers gradient;
  };
  Exact one_process(size_t step, const Numbers& weights);

  /// Where the weights of a stage begin and end among those of the whole model.
  std::pair<size_t, size_t> range(int stage) const;
  Numbers of_stage(const Numbers& whole, int stage) const;
  /// "model.norm.weight, element 3".
  std::string name(size_t element) const;

 private:
  void load(const Numbers& weights);
  /// `factor` times the loss of a microbatch summed over its targets, and its gradient.
  double compute(const TokenBatch& batch, double factor);

  const TrainingCase& case_;
  LlamaStage model_;
  Numbers initial_weights_;
  std::vector<size_t> stage_begins_;
};

double norm(const Numbers& values);
/// Scaled down to `max_norm`, if it is longer; 0: as it is.
Numbers clipped(Numbers values, double max_norm);

/// The norm of the gradient of a case's first step, over all replicas.
double first_gradient_norm(const TrainingCase& training);

}  // namespace lab::grading
