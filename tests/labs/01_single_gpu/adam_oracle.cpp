// One formula, with a switch for each mistake.
#include "tests/labs/01_single_gpu/adam_oracle.h"

#include <algorithm>
#include <cmath>

namespace lab01::task2 {
namespace {

// As the contract says.
constexpr double kMomentTolerance = 1e-6;
constexpr double kWeightTolerance = 2e-4;
constexpr double kRounding = 1.2e-7;  // of a weight when something is subtracted from it
constexpr double kSmallest = 1e-37;   // floats below that have few digits

double correction(double beta, int64_t step) {
  return 1 - std::pow(beta, static_cast<double>(step));
}

}  // namespace

const std::vector<std::pair<Wrong, std::string>> kMistakes = {
    {Wrong::kNoCorrections,
     "matches Adam without bias correction: divide both moments by 1 - beta^step"},
    {Wrong::kNoCorrection1,
     "the bias correction of the first moment is missing: divide m by 1 - beta1^step"},
    {Wrong::kNoCorrection2,
     "the bias correction of the second moment is missing: divide v by 1 - beta2^step"},
    {Wrong::kNextStep,
     "the step is off by one: bias correction as in the next update; step counts from 1"},
    {Wrong::kLastStep,
     "the step is off by one: bias correction as in the previous update; step counts from 1"},
    {Wrong::kOwnCount, "the function counts its own calls: use `step`, which is passed in"},
    {Wrong::kOtherEpsilon, "epsilon is not that of the configuration: 1e-8 is its default"},
    {Wrong::kEpsilonInRoot, "epsilon is inside the square root: it is added after the root"},
    {Wrong::kEpsilonSquared,
     "epsilon is squared inside the square root: it is added after the root"},
    {Wrong::kEpsilonDivided,
     "the first moment's correction was moved into the divisor, but epsilon is not multiplied by "
     "it"},
    {Wrong::kEpsilonEarly,
     "epsilon is added before the second moment is corrected: divide v by its correction first"},
    {Wrong::kEpsilonAsFloor,
     "epsilon is used as a lower bound of the divisor; it must always be added to the root"},
    {Wrong::kTinySkipped, "weights with tiny gradients do not move: every weight must"},
    {Wrong::kZeroSkipped,
     "elements whose gradient is 0 are skipped: their moments must still decay, and their "
     "weights still move"},
    {Wrong::kRestedSkipped,
     "elements whose gradient and first moment are 0 are skipped: their second moment must still "
     "decay"},
    {Wrong::kCorrectedRoot,
     "the root of the second moment is corrected: divide v by its correction, then take the root"},
    {Wrong::kNoRoot, "the square root of the second moment is missing"},
    {Wrong::kNoSquare, "the second moment is a mean of gradients: it should be of their squares"},
    {Wrong::kMagnitude, "the second moment is a mean of magnitudes: it should be of the squares"},
    {Wrong::kSwappedBetas,
     "the two moments, or the two betas, are swapped: beta1 belongs to the mean of the gradients"},
    {Wrong::kSwappedInMoments,
     "the two betas are swapped in the moments: beta1 belongs to the mean of the gradients"},
    {Wrong::kSwappedShares, "beta and 1 - beta are swapped: multiply the old moment by beta"},
    {Wrong::kBeta1Corrects, "both moments are corrected with beta1: divide v by 1 - beta2^step"},
    {Wrong::kBeta2Corrects, "both moments are corrected with beta2: divide m by 1 - beta1^step"},
    {Wrong::kPowerAlone, "the moments are divided by beta^step: the corrections are 1 - beta^step"},
    {Wrong::kMultiplied,
     "the moments are multiplied by their corrections: divide by 1 - beta^step"},
    {Wrong::kNoRate,
     "the learning rate is missing: a weight moves by the learning rate times the quotient"},
    {Wrong::kPlainGradient, "the update uses the gradient where the first moment belongs"},
    {Wrong::kOldMoments,
     "the update uses the moments from before it: compute the new moments first"},
    {Wrong::kNoDecay, "the old first moment is not multiplied by beta1"},
    {Wrong::kFullGradient, "the factor 1 - beta of the new gradient is missing"},
    {Wrong::kStoredCorrected,
     "the moments are stored with their bias correction; the next step corrects them once more: "
     "store them uncorrected"},
    {Wrong::kStateIgnored, "the moments that come in are ignored: they are the state"},
    {Wrong::kClamped, "large gradients are cut off: clipping is not the update's business"},
    {Wrong::kGrowsOnly, "the second moment never gets smaller: it is a mean, not a maximum"},
    {Wrong::kWeightDecay, "the weights shrink as well: weight decay is not the update's business"},
    {Wrong::kSwappedCorrections,
     "the corrections are swapped: divide m by 1 - beta1^step, and v by 1 - beta2^step"},
    {Wrong::kPowerOfRest, "the corrections are 1 - beta^step, not (1 - beta)^step"},
    {Wrong::kShareOfBeta1,
     "the new square is weighted by 1 - beta1: use 1 - beta2 in the second moment"},
    {Wrong::kByDifference,
     "a moment is computed as old + (1 - beta) (new - old): where the old one is much larger, "
     "the new one is lost to rounding. Weight both and add them, as in the formula"},
    {Wrong::kProduct, "the corrections are 1 - beta^step: a power, not a product"},
    {Wrong::kSquareOfMoment,
     "the second moment is a mean of squares of m: it should be of the gradient's squares"},
    {Wrong::kRateInMoment,
     "the learning rate is in the first moment: it belongs to the weights' change alone"},
    {Wrong::kDefaultBetas, "the betas are 0.9 and 0.999, not those of the configuration"},
    {Wrong::kNoEpsilon, "epsilon is missing: it is added to the root of the second moment"},
    {Wrong::kRawGradient, "the gradient is divided by the root: it should be the first moment"},
    {Wrong::kUphill, "the weights move up the gradient: subtract"},
    {Wrong::kNarrowStep, "step does not fit into an int: it is an int64_t, and may be above 2^31"},
    {Wrong::kNothingAtRateZero,
     "nothing happens at a learning rate of 0: the weights stay as they are, but the moments "
     "must still be updated"},
};

Element element(const Update& u, size_t i) {
  return {u.parameters.values()[i], u.gradients.values()[i], u.first_moment.values()[i],
          u.second_moment.values()[i]};
}

Moved moved_by(const Update& u, Wrong wrong) {
  const auto is = [wrong](Wrong one) { return wrong == one; };
  double b1 = u.config.beta1;
  double b2 = u.config.beta2;
  if (is(Wrong::kDefaultBetas)) {
    b1 = 0.9F;
    b2 = 0.999F;
  }
  if (is(Wrong::kSwappedBetas)) std::swap(b1, b2);
  double keep1 = is(Wrong::kSwappedShares) ? 1 - b1 : b1;
  double keep2 = is(Wrong::kSwappedShares) ? 1 - b2 : b2;
  if (is(Wrong::kSwappedInMoments)) std::swap(keep1, keep2);
  const double take1 = is(Wrong::kFullGradient) ? 1 : 1 - keep1;
  const double take2 = is(Wrong::kFullGradient)   ? 1
                       : is(Wrong::kShareOfBeta1) ? 1 - keep1
                                                  : 1 - keep2;
  const double epsilon = is(Wrong::kNoEpsilon)      ? 0
                         : is(Wrong::kOtherEpsilon) ? 1e-8
                                                    : u.config.epsilon;
  const double rate = is(Wrong::kUphill)   ? -u.learning_rate
                      : is(Wrong::kNoRate) ? 1
                                           : u.learning_rate;
  const int64_t step = is(Wrong::kOwnCount) ? 1
                       : is(Wrong::kNarrowStep)
                           ? static_cast<int32_t>(u.step)
                           : u.step + is(Wrong::kNextStep) - is(Wrong::kLastStep);
  const bool none = is(Wrong::kNoCorrections);
  double c1 = none || is(Wrong::kNoCorrection1) ? 1 : correction(b1, step);
  double c2 = none || is(Wrong::kNoCorrection2) ? 1 : correction(b2, step);
  if (is(Wrong::kSwappedCorrections)) std::swap(c1, c2);
  const auto steps = static_cast<double>(step);
  if (is(Wrong::kBeta1Corrects)) c2 = correction(b1, step);
  if (is(Wrong::kBeta2Corrects)) c1 = correction(b2, step);
  if (is(Wrong::kMultiplied)) c1 = 1 / c1, c2 = 1 / c2;
  if (is(Wrong::kPowerAlone)) c1 = std::pow(b1, steps), c2 = std::pow(b2, steps);
  if (is(Wrong::kPowerOfRest)) c1 = std::pow(1 - b1, steps), c2 = std::pow(1 - b2, steps);
  if (is(Wrong::kProduct)) c1 = 1 - b1 * steps, c2 = 1 - b2 * steps;
  Moved moved;
  for (size_t i = 0; i < static_cast<size_t>(u.size); ++i) {
    Element old = element(u, i);
    if (is(Wrong::kStateIgnored)) old.m = old.v = 0;
    const double g = is(Wrong::kClamped) ? std::clamp(old.g, -1.0, 1.0) : old.g;
    const double square = is(Wrong::kMagnitude) ? std::abs(g) : is(Wrong::kNoSquare) ? g : g * g;
    const double first = is(Wrong::kRateInMoment) ? rate * g : g;
    double m = (is(Wrong::kNoDecay) ? 1 : keep1) * old.m + take1 * first;
    double v = keep2 * old.v + take2 * (is(Wrong::kSquareOfMoment) ? m * m : square);
    if (is(Wrong::kByDifference)) {
      const auto from = [](double before, double beta, double now) {
        const auto old_moment = static_cast<float>(before);
        return old_moment +
               (1.0F - static_cast<float>(beta)) * (static_cast<float>(now) - old_moment);
      };
      m = from(old.m, b1, g);
      v = from(old.v, b2, square);
    }
    if (is(Wrong::kGrowsOnly)) v = std::max(v, old.v);
    const bool before = is(Wrong::kOldMoments);
    double top = (is(Wrong::kPlainGradient) ? g : before ? old.m : m) / c1;
    if (is(Wrong::kRawGradient)) top = g;
    const double bottom = (before ? old.v : v) / c2;
    double divisor = std::sqrt(bottom) + epsilon;
    if (is(Wrong::kEpsilonInRoot)) divisor = std::sqrt(bottom + epsilon);
    if (is(Wrong::kEpsilonSquared)) divisor = std::sqrt(bottom + epsilon * epsilon);
    if (is(Wrong::kEpsilonDivided)) divisor = std::sqrt(bottom) + epsilon / c1;
    if (is(Wrong::kEpsilonEarly)) divisor = (std::sqrt(v) + epsilon) / std::sqrt(c2);
    if (is(Wrong::kEpsilonAsFloor)) divisor = std::max(std::sqrt(bottom), epsilon);
    if (is(Wrong::kCorrectedRoot)) divisor = std::sqrt(v) / c2 + epsilon;
    if (is(Wrong::kNoRoot)) divisor = bottom + epsilon;
    double change = -rate * top / divisor;
    if (is(Wrong::kWeightDecay)) change -= rate * 0.01 * old.w;
    if (is(Wrong::kTinySkipped) && std::sqrt(bottom) <= epsilon) change = 0;
    if (is(Wrong::kStoredCorrected)) {
      m /= c1;
      v /= c2;
    }
    const bool skipped =
        (is(Wrong::kNothingAtRateZero) && u.learning_rate == 0) ||
        (g == 0 && (is(Wrong::kZeroSkipped) || (is(Wrong::kRestedSkipped) && old.m == 0)));
    moved.displacement.push_back(skipped ? 0 : change);
    moved.m.push_back(skipped ? old.m : m);
    moved.v.push_back(skipped ? old.v : v);
  }
  return moved;
}

Moved tolerance_of(const Update& u, const Moved& right) {
  const double b1 = u.config.beta1;
  const double c1 = correction(b1, u.step);
  const double c2 = correction(u.config.beta2, u.step);
  Moved allowed;
  for (size_t i = 0; i < static_cast<size_t>(u.size); ++i) {
    const Element old = element(u, i);
    const double first = kMomentTolerance * (std::abs(old.m) + std::abs(old.g));
    const double second = kMomentTolerance * (old.v + old.g * old.g);
    const double per_moment =
        u.learning_rate / c1 / (std::sqrt(right.v[i] / c2) + double{u.config.epsilon});
    const double size = b1 * std::abs(old.m) + (1 - b1) * std::abs(old.g);
    allowed.m.push_back(first + kSmallest);
    allowed.v.push_back(second + kSmallest);
    allowed.displacement.push_back(
        per_moment * kWeightTolerance * size +
        kRounding * std::max(std::abs(old.w), std::abs(old.w + right.displacement[i])) + kSmallest);
  }
  return allowed;
}

}  // namespace lab01::task2
