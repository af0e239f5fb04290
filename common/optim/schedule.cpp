#include "common/optim/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace lab {

float LearningRate::at(int64_t step) const {
  if (step < warmup_steps)
    return peak * static_cast<float>(step) / static_cast<float>(warmup_steps);
  if (decay == Decay::kConstant || total_steps <= warmup_steps) return peak;
  const double progress = std::min(1.0, static_cast<double>(step - warmup_steps) /
                                            static_cast<double>(total_steps - warmup_steps));
  constexpr float kFinalFraction = 0.1F;
  const double cosine = 0.5 * (1.0 + std::cos(std::numbers::pi * progress));
  return peak * static_cast<float>(kFinalFraction + (1.0 - kFinalFraction) * cosine);
}

}  // namespace lab
