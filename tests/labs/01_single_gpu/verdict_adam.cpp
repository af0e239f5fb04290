// Verdict on task 2: the Adam update, against float64 versions of right and wrong formulas.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "common/grading/verdict.h"
#include "tests/labs/01_single_gpu/random_input.h"

namespace lab01 {
namespace {

using lab::Tensor;
using lab::grading::Expected;
using lab::grading::Parcel;

struct Setting {
  float beta1 = 0.9F;
  float beta2 = 0.999F;
  float epsilon = 1e-8F;
  float learning_rate = 0.01F;
  int64_t first_step = 1;
  int64_t block = 1000;  // larger than all: one call
  Tensor gradients;      // [S, n], one row per update
  Tensor parameters;     // [n], and both moments, before
  Tensor first_moment;
  Tensor second_moment;

  int64_t updates() const { return gradients.size(0); }
  size_t size() const { return static_cast<size_t>(gradients.size(1)); }
};

/// A formula: Adam as it should be, or with one mistake.
struct Formula {
  std::string mistake = {};
  bool correct1 = true;
  bool correct2 = true;
  int64_t step_offset = 0;
  bool count_from_first_call = false;  // counts its own calls instead of using `step`
  bool epsilon_in_root = false;
  bool epsilon_before_correction = false;
  bool root = true;
  bool square = true;
  bool swapped_betas = false;
  bool plain_gradient = false;  // g in the place of the first moment
  bool old_moments = false;     // uses the moments from before the update
  bool forgets = false;         // the factor beta of the first moment is missing
  bool full_gradient = false;   // the factor 1 - beta is missing
  bool store_corrected = false;
  double sign = -1;
};

struct Trace {
  std::vector<double> displacement;  // of the weights from the start, [S, n]
  std::vector<double> m;
  std::vector<double> v;
};

Trace trace(const Setting& set, const Formula& f) {
  Trace trace;
  const double b1 = f.swapped_betas ? set.beta2 : set.beta1;
  const double b2 = f.swapped_betas ? set.beta1 : set.beta2;
  const double epsilon = set.epsilon;
  std::vector<double> m = lab::grading::to_doubles(set.first_moment);
  std::vector<double> v = lab::grading::to_doubles(set.second_moment);
  std::vector<double> moved(set.size(), 0.0);
  for (int64_t s = 0; s < set.updates(); ++s) {
    const auto step =
        static_cast<double>((f.count_from_first_call ? 1 : set.first_step) + s + f.step_offset);
    const double c1 = f.correct1 ? 1 - std::pow(b1, step) : 1;
    const double c2 = f.correct2 ? 1 - std::pow(b2, step) : 1;
    const std::span<float> gradients = set.gradients.rows(s, s + 1).values();
    for (size_t i = 0; i < set.size(); ++i) {
      const double g = gradients[i];
      const double old_m = m[i];
      const double old_v = v[i];
      m[i] = (f.forgets ? 1 : b1) * m[i] + (f.full_gradient ? 1 : 1 - b1) * g;
      v[i] = b2 * v[i] + (f.full_gradient ? 1 : 1 - b2) * (f.square ? g * g : g);
      const double top = (f.plain_gradient ? g : f.old_moments ? old_m : m[i]) / c1;
      const double bottom = (f.old_moments ? old_v : v[i]) / c2;
      double divisor = std::sqrt(bottom) + epsilon;
      if (f.epsilon_in_root) divisor = std::sqrt(bottom + epsilon);
      if (f.epsilon_before_correction) divisor = (std::sqrt(v[i]) + epsilon) / std::sqrt(c2);
      if (!f.root) divisor = bottom + epsilon;
      moved[i] += f.sign * double{set.learning_rate} * top / divisor;
      if (f.store_corrected) {
        m[i] /= c1;
        v[i] /= c2;
      }
    }
    trace.displacement.insert(trace.displacement.end(), moved.begin(), moved.end());
    trace.m.insert(trace.m.end(), m.begin(), m.end());
    trace.v.insert(trace.v.end(), v.begin(), v.end());
  }
  return trace;
}

std::vector<Formula> mistakes() {
  return {
      {.mistake = "matches Adam without bias correction: divide both moments by 1 - beta^step",
       .correct1 = false,
       .correct2 = false},
      {.mistake = "the bias correction of the first moment is missing: divide m by 1 - beta1^step",
       .correct1 = false},
      {.mistake = "the bias correction of the second moment is missing: divide v by 1 - beta2^step",
       .correct2 = false},
      {.mistake = "the step is off by one: bias correction as in the next update; step counts from "
                  "1, use it as it is",
       .step_offset = 1},
      {.mistake = "the step is off by one: bias correction as in the previous update; step counts "
                  "from 1, use it as it is",
       .step_offset = -1},
      {.mistake = "the function counts its own calls: use `step`, which is handed in",
       .count_from_first_call = true},
      {.mistake = "epsilon is inside the square root: it is added after the root",
       .epsilon_in_root = true},
      {.mistake = "epsilon is added before the second moment is corrected: divide v by its "
                  "correction first, then take the root, then add epsilon",
       .epsilon_before_correction = true},
      {.mistake = "the square root of the second moment is missing", .root = false},
      {.mistake = "the second moment is a mean of gradients: it should be of their squares",
       .square = false},
      {.mistake =
           "the two moments, or the two betas, are swapped: beta1 belongs to the mean of the "
           "gradients, beta2 to that of their squares",
       .swapped_betas = true},
      {.mistake = "the update uses the gradient where the first moment belongs",
       .plain_gradient = true},
      {.mistake = "the update uses the moments from before it: compute the new moments first",
       .old_moments = true},
      {.mistake = "the old first moment is not multiplied by beta1", .forgets = true},
      {.mistake = "the factor 1 - beta of the new gradient is missing", .full_gradient = true},
      {.mistake = "the moments are stored with their bias correction; the next step corrects them "
                  "once more: store them uncorrected",
       .store_corrected = true},
      {.mistake = "the weights move up the gradient: subtract", .sign = 1},
  };
}

/// Random gradients of both signs, none close to 0; weights so small that their rounding does not
/// blur the displacement.
Setting setting(int64_t updates, int64_t size, uint64_t seed) {
  Setting set{.gradients = random_tensor({updates, size}, 0.5, seed),
              .parameters = random_tensor({size}, 0.05, seed + 1),
              .first_moment = Tensor::zeros({size}),
              .second_moment = Tensor::zeros({size})};
  for (float& g : set.gradients.values()) g += g < 0 ? -0.1F : 0.1F;
  return set;
}

Parcel run(const Setting& set) {
  Parcel input;
  input.set("beta1", set.beta1);
  input.set("beta2", set.beta2);
  input.set("epsilon", set.epsilon);
  input.set("learning_rate", set.learning_rate);
  input.set("step", static_cast<double>(set.first_step));
  input.set("block", static_cast<double>(set.block));
  input.set("gradients", set.gradients);
  input.set("parameters", set.parameters);
  input.set("first_moment", set.first_moment);
  input.set("second_moment", set.second_moment);
  return lab::grading::student("adam_update", input);
}

std::vector<double> displacement(const Parcel& result, const Setting& set) {
  std::vector<double> moved = lab::grading::to_doubles(result.tensor("parameters"));
  for (size_t i = 0; i < moved.size(); ++i) moved[i] -= set.parameters.values()[i % set.size()];
  return moved;
}

Expected expectation(const std::string& what, const Setting& set,
                     std::vector<double> Trace::*values, double tolerance) {
  Expected expected{
      .what = what,
      .values = trace(set, {}).*values,
      .tolerance = {},
      .name =
          [&set](size_t i) {
            return "update " +
                   std::to_string(set.first_step + static_cast<int64_t>(i / set.size())) +
                   ", element " + std::to_string(i % set.size());
          },
      .mistakes = {},
      .if_not_finite =
          "not finite: a division by 0, as from a bias correction with "
          "step 0, or the root of a negative number?"};
  expected.tolerance = lab::grading::relative_tolerance(
      expected.values, tolerance, 0.01 * lab::grading::largest_magnitude(expected.values));
  for (const Formula& formula : mistakes())
    expected.mistakes.push_back({trace(set, formula).*values, formula.mistake});
  return expected;
}

// 1 - beta2^step keeps four digits when it is computed in float: that is not a mistake. What the
// mistakes change is at least 1 % in these tests.
void expect_weights(const Parcel& result, const Setting& set) {
  lab::grading::expect(displacement(result, set),
                       expectation("the change of the weights", set, &Trace::displacement, 2e-4));
}

// Two products and a sum in float.
void expect_moments(const Parcel& result, const Setting& set) {
  lab::grading::expect(lab::grading::to_doubles(result.tensor("first_moment")),
                       expectation("the first moment", set, &Trace::m, 1e-5));
  lab::grading::expect(lab::grading::to_doubles(result.tensor("second_moment")),
                       expectation("the second moment", set, &Trace::v, 1e-5));
}

TEST(Task2, MomentsAreRunningMeans) {
  const Setting set = setting(3, 5, 31);
  expect_moments(run(set), set);
}

TEST(Task2, FirstUpdateIsOneLearningRate) {
  const Setting set = setting(1, 6, 32);
  expect_weights(run(set), set);
}

TEST(Task2, BiasIsCorrectedInEveryUpdate) {
  const Setting set = setting(5, 4, 33);
  expect_weights(run(set), set);
}

TEST(Task2, EpsilonStandsOutsideTheRoot) {
  Setting set = setting(3, 5, 34);
  set.epsilon = 0.2F;  // of the size of the gradients, so that its place matters
  expect_weights(run(set), set);
}

TEST(Task2, StepIsHandedIn) {
  Setting set = setting(2, 5, 35);
  set.first_step = 40;
  set.first_moment = random_tensor({5}, 0.2, 36);
  set.second_moment = random_tensor({5}, 0.005, 37);
  for (float& v : set.second_moment.values()) v = std::abs(v) + 0.001F;
  const Parcel result = run(set);
  expect_weights(result, set);
  expect_moments(result, set);
}

TEST(Task2, BetasComeFromTheConfiguration) {
  Setting set = setting(3, 4, 38);
  set.beta1 = 0.5F;
  set.beta2 = 0.75F;
  set.learning_rate = 0.003F;
  const Parcel result = run(set);
  expect_weights(result, set);
  expect_moments(result, set);
}

TEST(Task2, BlocksDoNotDependOnEachOther) {
  Setting set = setting(3, 203, 39);
  set.block = 7;  // many calls per update, on several threads, the last one shorter
  const Parcel result = run(set);
  expect_weights(result, set);
  expect_moments(result, set);
}

}  // namespace
}  // namespace lab01
