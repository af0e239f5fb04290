// TrainingCase: some training steps as data, drawn from a seed. The one source of scenarios for the
// steps of all labs.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "common/data/batch.h"
#include "common/model/config.h"
#include "common/model/llama_stage.h"
#include "tests/grading/parcel.h"

namespace lab::grading {

/// `replicas` copies of a model, each cut into stages: rank = replica * stages + stage.
struct TrainingCase {
  std::string name;  // "one rank has no target"
  LlamaConfig model;
  uint64_t seed = 7;  // of the initial weights
  int replicas = 1;
  std::vector<int64_t> layers_of_stages = {};  // none: one stage
  std::string optimizer = "sgd";
  float learning_rate = 0.05F;
  bool warms_up = false;  // the learning rate grows from 0 in the first step
  double max_norm = 0;
  float leftover = 0;      // in every gradient before a step; 0: what the step before has left
  double loss_factor = 1;  // of the loss that the steps are given, and of its gradient
  /// In this step, counted from 0, the loss is NaN for the targets of the last replica, although
  /// the gradient is right: a run that has gone wrong must show it, and go on like any other.
  std::optional<size_t> nan_loss_step = {};
  /// [step][replica][microbatch]
  std::vector<std::vector<std::vector<TokenBatch>>> steps = {};

  int stages() const {
    return layers_of_stages.empty() ? 1 : static_cast<int>(layers_of_stages.size());
  }
  int ranks() const { return replicas * stages(); }
  StageSpan span(int stage) const;
  bool has_nan_loss(size_t step, size_t replica) const {
    return step == nan_loss_step && replica + 1 == static_cast<size_t>(replicas);
  }
  /// The learning rate of a step, counted from 0.
  float rate(size_t step) const {
    return warms_up ? learning_rate * static_cast<float>(step) : learning_rate;
  }
  /// What rank `rank` is given: its stage, and of its replica's microbatches what that stage may
  /// read. The first stage gets the tokens and the last one the targets; otherwise the tokens are
  /// missing or wrong.
  Parcel input(int rank) const;
};

/// The same steps with `factor` times the loss, its gradient and max_norm: SGD's learning rate
/// makes up for it.
void scale_loss(TrainingCase& c, double factor);

/// What the contract of a task allows.
struct CaseLimits {
  int replicas = 1;
  int stages = 1;
  int microbatches = 3;         // at most, in a step of a replica
  bool unequal_counts = false;  // replicas may have different numbers of microbatches, or none
  int multiple_of = 1;          // of the number of microbatches
  bool equal_shapes = false;    // of all microbatches
};

/// A case for each property that has been overlooked before: unequal targets, a replica without
/// targets, a whole step without, a tied head, grouped queries, odd sizes, gradients clipped and
/// just not clipped, leftover gradients (of kLargeLeftover in some), a loss that is NaN, equal
/// microbatches, a large matrix, several steps. The simplest case comes first.
std::vector<TrainingCase> draw_cases(const CaseLimits& limits, uint64_t seed);

/// Leftover gradients must not affect a whole step. In the place of kLargeLeftover it finds what an
/// overflow leaves: 0 times infinity is not 0.
inline constexpr float kLargeLeftover = 0.5F;
inline float overflowed(float leftover) {
  return leftover == kLargeLeftover ? std::numeric_limits<float>::infinity() : leftover;
}

/// Rows of random tokens; row b keeps lengths[b] of them, the rest is padding.
TokenBatch draw_tokens(const std::vector<int64_t>& lengths, int64_t length, int64_t vocab,
                       uint64_t seed);

/// Uniform in [-scale, scale).
Tensor draw_tensor(const Shape& shape, double scale, uint64_t seed);

}  // namespace lab::grading
