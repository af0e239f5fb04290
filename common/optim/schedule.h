// Learning rate over the course of training.
#pragma once

#include <cstdint>
#include <string>

namespace lab {

/// How the learning rate changes after warm-up.
enum class Decay { kConstant, kCosine };

/// Rises linearly from 0 over `warmup_steps`, then stays constant or falls along half a cosine to a
/// tenth of the peak at `total_steps`.
struct LearningRate {
  float peak = 8e-4F;
  int64_t warmup_steps = 0;
  int64_t total_steps = 0;
  Decay decay = Decay::kConstant;

  /// The rate of update `step`, counted from 1.
  float at(int64_t step) const;
};

}  // namespace lab
