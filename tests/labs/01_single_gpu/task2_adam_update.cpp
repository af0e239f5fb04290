// Task 2: single updates from any state, against right and wrong formulas in double.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>

#include "common/optim/optimizer.h"
#include "tests/grading/training_case.h"
#include "tests/grading/verdict.h"

namespace lab01::task2 {
namespace {

using lab::Tensor;
using lab::grading::Mistake;
using lab::grading::Numbers;
using lab::grading::Parcel;
using lab::grading::stop;
using lab::grading::to_doubles;

// As the contract says.
constexpr double kMomentTolerance = 1e-6;
constexpr double kWeightTolerance = 2e-4;
constexpr double kRounding = 1.2e-7;  // of a weight when something is subtracted from it
constexpr double kSmallest = 1e-37;   // floats below that have few digits

struct Update {
  int64_t size = 5;
  int64_t step = 1;
  lab::AdamConfig config = {};
  float learning_rate = 0.03F;
  int64_t block = 1 << 15;
  Tensor parameters = {};  // and all others before the update
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
  kBeta2Corrects, kPowerAlone, kMultiplied, kNoRate
};
// clang-format on

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
     "the first moment's correction is in the divisor, and epsilon is not multiplied by it"},
    {Wrong::kEpsilonEarly,
     "epsilon is added before the second moment is corrected: divide v by its correction first"},
    {Wrong::kEpsilonAsFloor,
     "epsilon is used as the least divisor; it must always be added to the root"},
    {Wrong::kTinySkipped, "weights with tiny gradients are left alone: every weight moves"},
    {Wrong::kZeroSkipped,
     "elements whose gradient is 0 are skipped: moments decay, and weights move on"},
    {Wrong::kRestedSkipped,
     "elements without gradient and first moment are skipped: the second moment decays, too"},
    {Wrong::kCorrectedRoot,
     "the root of the second moment is corrected: divide v by its correction, then take the root"},
    {Wrong::kNoRoot, "the square root of the second moment is missing"},
    {Wrong::kNoSquare, "the second moment is a mean of gradients: it should be of their squares"},
    {Wrong::kMagnitude, "the second moment is a mean of magnitudes: it should be of the squares"},
    {Wrong::kSwappedBetas,
     "the two moments, or the two betas, are swapped: beta1 belongs to the mean of the gradients"},
    {Wrong::kSwappedInMoments,
     "the two betas are swapped in the moments: beta1 belongs to the mean of the gradients"},
    {Wrong::kSwappedShares, "beta and 1 - beta are swapped: the old moment is kept by beta"},
    {Wrong::kBeta1Corrects,
     "both moments are corrected with beta1: v is divided by 1 - beta2^step"},
    {Wrong::kBeta2Corrects,
     "both moments are corrected with beta2: m is divided by 1 - beta1^step"},
    {Wrong::kPowerAlone, "the moments are divided by beta^step: the corrections are 1 - beta^step"},
    {Wrong::kMultiplied,
     "the moments are multiplied by their corrections: divide by 1 - beta^step"},
    {Wrong::kNoRate, "the learning rate is missing: a weight moves by it times the quotient"},
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
     "the corrections are swapped: m is divided by 1 - beta1^step, v by 1 - beta2^step"},
    {Wrong::kPowerOfRest, "the corrections are 1 - beta^step, not (1 - beta)^step"},
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
     "nothing happens at a learning rate of 0: the weights stay, but the moments are the state"},
};

struct Moved {
  Numbers displacement;  // of the weights
  Numbers m;
  Numbers v;
};

double correction(double beta, int64_t step) {
  return 1 - std::pow(beta, static_cast<double>(step));
}

struct Element {
  double w = 0;
  double g = 0;
  double m = 0;
  double v = 0;
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
  const double take2 = is(Wrong::kFullGradient) ? 1 : 1 - keep2;
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

/// What the contract allows around `right`.
Moved tolerance_of(const Update& u, const Moved& right) {
  const double b1 = u.config.beta1;
  const double c1 = correction(b1, u.step);
  const double c2 = correction(u.config.beta2, u.step);
  Moved allowed;
  for (size_t i = 0; i < static_cast<size_t>(u.size); ++i) {
    const Element old = element(u, i);
    const double v = right.v[i];
    const double first = kMomentTolerance * (std::abs(old.m) + std::abs(old.g));
    const double second = kMomentTolerance * (old.v + old.g * old.g);
    const double per_moment = u.learning_rate / c1 / (std::sqrt(v / c2) + double{u.config.epsilon});
    const double size = b1 * std::abs(old.m) + (1 - b1) * std::abs(old.g);
    // Of the root, half as much as of v.
    const double of_second = v > kSmallest ? std::min(0.5 * second / v, 1.0) : 0.0;
    allowed.m.push_back(first + kSmallest);
    allowed.v.push_back(second + kSmallest);
    allowed.displacement.push_back(
        per_moment * (first + (kWeightTolerance + of_second) * size) +
        kRounding * std::max(std::abs(old.w), std::abs(old.w + right.displacement[i])) + kSmallest);
  }
  return allowed;
}

void expect_all(const Update& u, const Parcel& result) {
  Moved got{to_doubles(result.tensor("parameters")), to_doubles(result.tensor("first_moment")),
            to_doubles(result.tensor("second_moment"))};
  for (size_t i = 0; i < got.displacement.size(); ++i)
    got.displacement[i] -= double{u.parameters.values()[i]};
  const Moved right = moved_by(u, Wrong::kNothing);
  const Moved allowed = tolerance_of(u, right);
  const auto moves_as = [&](const Moved& moved) {
    for (size_t i = 0; i < moved.displacement.size(); ++i)
      if (!(std::abs(got.displacement[i] - moved.displacement[i]) <= allowed.displacement[i]))
        return false;
    return true;
  };
  const bool moves_right = moves_as(right);
  const auto expect_part = [&](const std::string& what, Numbers Moved::*part) {
    lab::grading::expect(
        got.*part,
        {.what = what,
         .values = right.*part,
         .tolerance = allowed.*part,
         .name = [](size_t i) { return fmt::format("element {}", i); },
         .mistakes =
             [&] {
               std::vector<Mistake> all;
               for (const auto& [wrong, message] : kMistakes) {
                 const Moved moved = moved_by(u, wrong);
                 // Where weights move as they should, no mistake that would move them otherwise.
                 if (!moves_right || moves_as(moved)) all.push_back({moved.*part, message});
               }
               Numbers cut = right.*part;  // the rest, of whole groups of so many elements
               const auto leave_from = [&](size_t first, const std::string& message) {
                 for (size_t i = first; i < cut.size(); ++i)
                   cut[i] = part == &Moved::displacement ? 0
                            : part == &Moved::m          ? element(u, i).m
                                                         : element(u, i).v;
                 all.push_back({cut, message});
                 cut = right.*part;
               };
               if (cut.size() > 1) leave_from(cut.size() - 1, "the last element is left as it was");
               for (const size_t group : {4, 8, 16})
                 leave_from(cut.size() / group * group,
                            fmt::format("the last elements are left as they were: the number of "
                                        "elements need not be a multiple of {}",
                                        group));
               return all;
             },
         .if_not_finite = what +
                          ": not finite: a division by 0, as from a bias correction with step "
                          "0, or the root of a negative number?"});
  };
  expect_part("the first moment", &Moved::m);
  expect_part("the second moment", &Moved::v);
  expect_part("the change of the weights", &Moved::displacement);
}

/// The state of an optimizer that has made some steps, with zeros, tiny and large numbers in it.
Update draw(Update u, uint64_t seed) {
  const auto random = [&](double scale) {
    return lab::grading::draw_tensor({u.size}, scale, ++seed);
  };
  seed = 100 * (seed + 1000 * lab::grading::scenario_seed());
  u.parameters = random(0.05);
  u.gradients = random(0.5);
  u.first_moment = u.step == 1 ? Tensor::zeros({u.size}) : random(0.3);
  u.second_moment = u.step == 1 ? Tensor::zeros({u.size}) : random(0.3);
  for (float& v : u.second_moment.values()) v = std::abs(v) + 0.001F;
  if (u.step == 1) u.second_moment.fill(0.0F);
  for (size_t i = 0; i < static_cast<size_t>(u.size); ++i) {
    float& g = u.gradients.values()[i];
    g += g < 0 ? -0.1F : 0.1F;  // none of the usual ones is close to 0
    const auto scale_all = [&](float factor) {
      g *= factor;
      u.first_moment.values()[i] *= factor;
      u.second_moment.values()[i] *= factor * factor;
    };
    if (i % 11 == 3) g = 0;
    if (i % 11 == 5) scale_all(3e-8F);
    if (i % 11 == 6) scale_all(1e-15F);
    if (i % 11 == 7) scale_all(9);
    if (i % 11 == 8) scale_all(1e15F);
    if (i % 11 == 9) u.parameters.values()[i] *= 90;
    if (i % 11 == 10) scale_all(0);
    if (i % 22 == 14) g = u.first_moment.values()[i] = 0;   // at rest, but not the second moment
    if (i % 22 == 12) u.second_moment.values()[i] *= 1e8F;  // of a step that blew up
  }
  return u;
}

void expect_updates(std::vector<Update> updates, uint64_t seed) {
  std::vector<lab::grading::Call> calls;
  for (Update& u : updates) {
    u = draw(u, ++seed);
    Parcel input;
    input.set("beta1", double{u.config.beta1});
    input.set("beta2", double{u.config.beta2});
    input.set("epsilon", double{u.config.epsilon});
    input.set("learning_rate", double{u.learning_rate});
    input.set("step", static_cast<double>(u.step));
    input.set("block", static_cast<double>(u.block));
    input.set("parameters", u.parameters);
    input.set("gradients", u.gradients);
    input.set("first_moment", u.first_moment);
    input.set("second_moment", u.second_moment);
    calls.push_back({.scenario = "adam_update", .inputs = {input}, .name = u.name()});
  }
  judge_calls(calls, {.network = lab::grading::Network::kNone},
              [&](size_t k, const std::vector<Parcel>& ranks) {
                if (ranks[0].number("fence_broken") != 0)
                  stop(
                      "memory outside of the spans was overwritten: the loop ends with the span, "
                      "whatever its length");
                if (to_doubles(ranks[0].tensor("gradients")) != to_doubles(updates[k].gradients))
                  stop("the gradients were changed: adam_update only reads them");
                expect_all(updates[k], ranks[0]);
              });
}

TEST(Task2, FirstUpdateIsOneLearningRate) { expect_updates({{.size = 3}}, 10); }

TEST(Task2, StepIsHandedIn) { expect_updates({{.size = 3, .step = 40}}, 20); }

TEST(Task2, EpsilonStandsOutsideTheRoot) {
  const lab::AdamConfig large{.epsilon = 0.2F};  // of the size of the gradients
  expect_updates({{.size = 6, .step = 3, .config = large}, {.size = 6, .config = large}}, 30);
}

TEST(Task2, EveryStateStepAndConfiguration) {
  const lab::AdamConfig usual;
  const lab::AdamConfig quick{.beta1 = 0.5F, .beta2 = 0.75F, .epsilon = 1e-3F};
  const lab::AdamConfig slow{.beta1 = 0.95F, .beta2 = 0.99999F};
  const lab::AdamConfig slowest{.beta1 = 0.9F, .beta2 = 0.999999F};
  const lab::AdamConfig no_memory{.beta1 = 0, .beta2 = 0, .epsilon = 1e-5F};
  expect_updates({{.size = 203, .step = 7, .config = usual, .block = 7},
                  {.size = 203, .step = 7, .config = quick, .learning_rate = 0.003F},
                  {.size = 203, .step = 7, .config = quick, .learning_rate = 0.003F, .block = 50},
                  {.size = 1, .step = 2, .config = slow},
                  {.size = 45, .step = 2, .config = slowest},
                  {.size = 1001, .step = 999, .config = usual, .learning_rate = 1},
                  {.size = 64, .step = 1000, .config = usual, .learning_rate = 1e-5F},
                  {.size = 37, .step = 1001, .config = usual},
                  {.size = 37, .step = 1, .config = usual},
                  {.size = 37, .step = 2, .config = usual},
                  {.size = 37, .step = 3, .config = usual, .learning_rate = 0},  // of a warm-up
                  {.size = 21, .step = 300, .config = slow},
                  {.size = 21, .step = 5, .config = slowest},
                  {.size = 18, .step = 10'000, .config = slow},
                  {.size = 23, .step = 3, .config = no_memory},
                  {.size = 29, .step = 123'456, .config = slowest},
                  {.size = 31, .step = 20'000'000, .config = slowest},
                  {.size = 31, .step = 3'000'000'007, .config = usual},
                  {.size = 33'001, .step = 5, .config = usual, .block = 1000},
                  {.size = (1 << 20) + 5, .step = 12, .config = usual}},
                 40);
}

}  // namespace
}  // namespace lab01::task2
