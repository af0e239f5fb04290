// Verdict on task C3: the Adam update on a GPU.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "common/grading/verdict.h"
#include "tests/labs/01_single_gpu/random_input.h"
#include "tests/labs/01cuda_kernels/judge.h"

namespace lab01cuda {
namespace {

using lab::Tensor;
using lab::grading::Expected;
using lab::grading::Parcel;
using lab::grading::to_doubles;

struct Setting {
  Tensor gradients;  // [updates, n]
  Tensor parameters;
  Tensor first_moment;
  Tensor second_moment;
  float beta1 = 0.9F;
  float beta2 = 0.999F;
  float epsilon = 1e-8F;
  float learning_rate = 0.01F;
  int64_t first_step = 1;

  size_t count() const { return static_cast<size_t>(gradients.size(1)); }
};

/// Random gradients of both signs, none close to 0; weights so small that their rounding does not
/// blur the displacement.
Setting setting(int64_t updates, int64_t count) {
  Setting set{.gradients = lab01::random_tensor({updates, count}, 0.5, 71),
              .parameters = lab01::random_tensor({count}, 0.05, 72),
              .first_moment = Tensor::zeros({count}),
              .second_moment = Tensor::zeros({count})};
  for (float& g : set.gradients.values()) g += g < 0 ? -0.1F : 0.1F;
  return set;
}

/// The update, and what it becomes by a mistake.
struct Formula {
  std::string mistake = {};
  bool correct = true;
  int64_t step_offset = 0;
  bool epsilon_in_root = false;
  bool epsilon_first = false;
  bool square = true;
  bool old_moments = false;
  bool swapped_betas = false;
  double sign = -1;
  int times = 1;  // every element, in each update
};

struct State {
  std::vector<double> moved;  // parameters, less those at the start
  std::vector<double> m;
  std::vector<double> v;
};

State state_after(const Setting& set, const Formula& f) {
  const double b1 = f.swapped_betas ? set.beta2 : set.beta1;
  const double b2 = f.swapped_betas ? set.beta1 : set.beta2;
  const double epsilon = set.epsilon;
  State state{.moved = std::vector<double>(set.count(), 0.0),
              .m = to_doubles(set.first_moment),
              .v = to_doubles(set.second_moment)};
  for (int64_t s = 0; s < set.gradients.size(0); ++s) {
    const auto step = static_cast<double>(set.first_step + s + f.step_offset);
    const double c1 = f.correct ? 1 - std::pow(b1, step) : 1;
    const double c2 = f.correct ? 1 - std::pow(b2, step) : 1;
    const std::span<const float> gradients = set.gradients.rows(s, s + 1).values();
    for (size_t i = 0; i < set.count(); ++i)
      for (int time = 0; time < f.times; ++time) {
        const double g = gradients[i];
        const double old_m = state.m[i];
        const double old_v = state.v[i];
        state.m[i] = b1 * old_m + (1 - b1) * g;
        state.v[i] = b2 * old_v + (1 - b2) * (f.square ? g * g : g);
        const double top = (f.old_moments ? old_m : state.m[i]) / c1;
        const double v = f.old_moments ? old_v : state.v[i];
        double divisor = std::sqrt(v / c2) + epsilon;
        if (f.epsilon_in_root) divisor = std::sqrt(v / c2 + epsilon);
        if (f.epsilon_first) divisor = (std::sqrt(v) + epsilon) / std::sqrt(c2);
        state.moved[i] += f.sign * double{set.learning_rate} * top / divisor;
      }
  }
  return state;
}

std::vector<Formula> mistakes() {
  return {
      {.mistake = "matches Adam without bias correction: divide both moments by 1 - beta^step",
       .correct = false},
      {.mistake = "the step is off by one: bias correction as in the next update; step counts from "
                  "1, use it as it is",
       .step_offset = 1},
      {.mistake = "the step is off by one: bias correction as in the previous update; step counts "
                  "from 1, use it as it is",
       .step_offset = -1},
      {.mistake = "epsilon is inside the square root: it is added after the root",
       .epsilon_in_root = true},
      {.mistake = "epsilon is added before the second moment is corrected: correct, take the root, "
                  "then add epsilon",
       .epsilon_first = true},
      {.mistake = "the second moment is a mean of gradients: it should be of their squares",
       .square = false},
      {.mistake = "the update uses the moments as they were before it: work out the new ones first",
       .old_moments = true},
      {.mistake = "the two betas are swapped: beta1 belongs to the mean of the gradients, beta2 to "
                  "that of their squares",
       .swapped_betas = true},
      {.mistake = "the weights move up the gradient: subtract", .sign = 1},
      {.mistake = "every element was updated twice: do two threads have the same elements?",
       .times = 2},
  };
}

Parcel run(const Setting& set, int64_t fence = 0) {
  Parcel input;
  input.set("beta1", set.beta1);
  input.set("beta2", set.beta2);
  input.set("epsilon", set.epsilon);
  input.set("learning_rate", set.learning_rate);
  input.set("step", static_cast<double>(set.first_step));
  input.set("gradients", set.gradients);
  input.set("parameters", set.parameters);
  input.set("first_moment", set.first_moment);
  input.set("second_moment", set.second_moment);
  input.set("fence", static_cast<double>(fence));
  return run_kernel("adam", input);
}

std::vector<double> displacement(const Parcel& result, const Setting& set) {
  std::vector<double> moved = to_doubles(result.tensor("parameters"));
  for (size_t i = 0; i < moved.size(); ++i) moved[i] -= double{set.parameters.values()[i]};
  return moved;
}

Expected expectation(const std::string& what, const Setting& set,
                     std::vector<double> State::*values, double tolerance) {
  Expected expected{.what = what,
                    .values = state_after(set, {}).*values,
                    .tolerance = {},
                    .name = [](size_t i) { return fmt::format("element {}", i); },
                    .mistakes = {},
                    .if_not_finite =
                        "not finite: a division by 0, as from a bias correction with "
                        "step 0, or memory that holds no number?"};
  expected.tolerance = lab::grading::relative_tolerance(
      expected.values, tolerance, 0.01 * lab::grading::largest_magnitude(expected.values));
  for (const Formula& formula : mistakes())
    expected.mistakes.push_back({state_after(set, formula).*values, formula.mistake});
  return expected;
}

/// Ends the test if some elements were updated and others not, or not as often.
void expect_each_element_once(const std::vector<double>& moved, const Setting& set) {
  const State once = state_after(set, {});
  const State twice = state_after(set, {.times = 2});
  size_t right = 0;
  size_t never = 0;
  size_t again = 0;
  for (size_t i = 0; i < moved.size(); ++i) {
    const auto is = [&](double value) {
      return std::abs(moved[i] - value) <= 1e-3 * std::abs(value);
    };
    right += is(once.moved[i]);
    never += moved[i] == 0;
    again += is(twice.moved[i]);
  }
  if (right == moved.size() || again == moved.size()) return;
  if (never == moved.size())
    lab::grading::stop(
        "no weight has changed: was anything written, and were the new moments used?");
  if (never + again > 0 && right + never + again == moved.size())
    lab::grading::stop(
        fmt::format("{} of {} elements were updated never, {} twice: a thread begins at its number "
                    "in the grid, blockIdx.x * blockDim.x + threadIdx.x, and goes on by as many as "
                    "the grid has threads, gridDim.x * blockDim.x, while it is below count",
                    never, moved.size(), again));
}

Parcel expect_right(const Setting& set, int64_t fence = 0) {
  Parcel result = run(set, fence);
  const std::vector<double> moved = displacement(result, set);
  expect_each_element_once(moved, set);
  // 1 - beta2^step keeps four digits when it is computed in float: that is not a mistake here.
  lab::grading::expect(moved, expectation("the change of the weights", set, &State::moved, 2e-4));
  lab::grading::expect(to_doubles(result.tensor("first_moment")),
                       expectation("the first moment", set, &State::m, 1e-5));
  lab::grading::expect(to_doubles(result.tensor("second_moment")),
                       expectation("the second moment", set, &State::v, 1e-5));
  return result;
}

TEST(TaskC3, FirstUpdateIsOneLearningRate) { expect_right(setting(1, 6)); }

TEST(TaskC3, BiasIsCorrectedInEveryUpdate) { expect_right(setting(5, 40)); }

TEST(TaskC3, EpsilonStandsOutsideTheRoot) {
  Setting set = setting(3, 40);
  set.epsilon = 0.2F;  // of the size of the gradients, so that its place matters
  expect_right(set);
}

TEST(TaskC3, StepIsHandedIn) {
  Setting set = setting(2, 40);
  set.first_step = 40;
  set.first_moment = lab01::random_tensor({40}, 0.2, 73);
  set.second_moment = lab01::random_tensor({40}, 0.005, 74);
  for (float& v : set.second_moment.values()) v = std::abs(v) + 0.001F;
  expect_right(set);
}

TEST(TaskC3, BetasComeFromTheConfiguration) {
  Setting set = setting(3, 40);
  set.beta1 = 0.5F;
  set.beta2 = 0.75F;
  set.learning_rate = 0.003F;
  expect_right(set);
}

TEST(TaskC3, ArraysOfAllLengths) {
  for (int64_t count : {0, 1, 127, 128, 129, 1000}) expect_right(setting(2, count));
}

TEST(TaskC3, MoreElementsThanThreads) {
  const Setting set = setting(1, 140'001);
  const Parcel result = expect_right(set);
  const double numbers = 4.0 * static_cast<double>(set.count());
  expect_shared_work(
      result, "",
      {.limit = std::floor(numbers / 1000),
       .lesson = "a few threads update all: each element is to have a thread of its own, as far as "
                 "the grid goes; are there enough blocks, and does a thread begin at its number in "
                 "the grid?",
       .of_what = fmt::format("the four arrays together have {}", numbers)});
}

TEST(TaskC3, NothingElseIsWritten) { expect_right(setting(2, 300), 64); }

}  // namespace
}  // namespace lab01cuda
