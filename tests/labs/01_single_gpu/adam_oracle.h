// An Adam update in double: the right one, and what plausible mistakes would make of it.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "common/optim/optimizer.h"
#include "common/tensor/tensor.h"
#include "tests/grading/compare.h"

namespace lab01::task2 {

using lab::Tensor;
using lab::grading::Numbers;

struct Update {
  int64_t size = 5;
  int64_t step = 1;
  lab::AdamConfig config = {};
  float learning_rate = 0.03F;
  int64_t block = 1 << 15;
  bool has_moments = false;  // also before step 1
  Tensor parameters = {};    // and all others before the update
  Tensor gradients = {};
  Tensor first_moment = {};
  Tensor second_moment = {};

  std::string name() const {
    return fmt::format("{} elements, step {}, beta1 {}, beta2 {}, epsilon {}", size, step,
                       config.beta1, config.beta2, config.epsilon);
  }
};

/// One mistake each.
// clang-format off
enum class Wrong {
  kNothing, kNoCorrections, kNoCorrection1, kNoCorrection2, kNextStep, kLastStep, kOwnCount,
  kOtherEpsilon, kEpsilonInRoot, kEpsilonEarly, kEpsilonAsFloor, kTinySkipped, kZeroSkipped,
  kRestedSkipped, kNoRoot, kNoSquare, kMagnitude, kSwappedBetas, kSwappedShares, kPlainGradient,
  kOldMoments, kNoDecay, kFullGradient, kStoredCorrected, kStateIgnored, kClamped, kGrowsOnly,
  kWeightDecay, kUphill, kNarrowStep, kNothingAtRateZero, kCorrectedRoot,
  kSwappedCorrections, kPowerOfRest, kProduct, kSquareOfMoment, kRateInMoment, kSwappedInMoments,
  kDefaultBetas, kNoEpsilon, kRawGradient, kEpsilonSquared, kEpsilonDivided, kBeta1Corrects,
  kBeta2Corrects, kPowerAlone, kMultiplied, kNoRate, kByDifference,
  kShareOfBeta1
};
// clang-format on

/// What to say of each.
extern const std::vector<std::pair<Wrong, std::string>> kMistakes;

struct Moved {
  Numbers displacement;  // of the weights
  Numbers m;
  Numbers v;
};

struct Element {
  double w = 0;
  double g = 0;
  double m = 0;
  double v = 0;
};
/// Element i before the update.
Element element(const Update& u, size_t i);

Moved moved_by(const Update& u, Wrong wrong);

/// What the contract allows around `right`.
Moved tolerance_of(const Update& u, const Moved& right);

}  // namespace lab01::task2
