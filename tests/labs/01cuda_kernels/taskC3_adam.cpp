// Task C3: the Adam update on a GPU.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "tests/labs/01cuda_kernels/judge.h"

namespace lab01cuda::task_c3 {
namespace {

/// What one update is given. `g`: the gradients; `w`: the parameters; all are [count].
struct Update {
  int64_t step;
  Tensor g;
  Tensor w;
  Tensor m;
  Tensor v;
  std::array<float, 4> constants;  // beta1, beta2, epsilon, learning rate

  size_t count() const { return static_cast<size_t>(g.numel()); }
};

/// Of every four gradients one is of the order 1, one small, one zero, and one of the order of the
/// usual epsilon. Moments are of their order; zero for some, and for most in the first update. Some
/// have rested: neither a gradient nor a first moment, but a second one. Some had a gradient once
/// that was many times as large.
Update draw_update(int64_t count, int64_t step, uint64_t number,
                   const std::array<float, 4>& constants = {0.9F, 0.999F, 1e-8F, 0.01F}) {
  const uint64_t seed = 1000 * lab::grading::scenario_seed() + number;
  const auto draw = [=](double scale, uint64_t k) { return draw_tensor({count}, scale, seed + k); };
  Update update{step, draw(0.5, 0), draw(0.05, 1), draw(0.5, 2), draw(0.5, 3), constants};
  constexpr float kSizes[] = {1, 1e-3F, 0.5F, 1e-8F};
  for (size_t i = 0; i < update.count(); ++i) {
    float& g = update.g.values()[i];
    float& v = update.v.values()[i];
    const float size = kSizes[i % 4];
    const float fresh = (step == 1 ? i % 9 != 8 : i % 9 == 8) ? 0.0F : 1.0F;
    g = i % 4 == 2 ? 0 : size * (g + (g < 0 ? -0.1F : 0.1F));
    v = fresh * size * size * (std::abs(v) + 0.1F);
    update.m.values()[i] *= i % 20 == 10 ? 0.0F : fresh * size;
    if (i % 20 == 17) v *= 1e8F;
  }
  return update;
}

/// What an element's update is made of, and what becomes of it by a mistake.
struct Terms {
  double g, m, v, beta1, beta2, epsilon, learning_rate, step1, step2;
  bool square = true;
  bool root_last = false;
  bool stores_corrected = false;
  bool old_moments = false;
  bool skip_zero = false;
  bool swapped = false;         // the corrections
  bool corrected_root = false;  // the root is divided, not what is under it
  bool one_decay = false;       // both moments decay by beta1
  bool one_weight = false;      // what is new weighs 1 - beta1 in both
  bool keeps_moments = false;   // the new ones are not stored
  bool by_difference = false;   // old + (1 - beta) (new - old), in float
  int times = 1;
};

struct Element {
  double m, v, moved;
};

Element updated(const Terms& t) {
  Element e{t.m, t.v, 0};
  for (int time = 0; time < t.times && (t.g != 0 || !t.skip_zero); ++time) {
    const Element old = e;
    e.m = t.beta1 * e.m + (1 - t.beta1) * t.g;
    const double decay = t.one_decay ? t.beta1 : t.beta2;
    const double weight = t.one_weight ? 1 - t.beta1 : 1 - decay;
    e.v = decay * e.v + weight * (t.square ? t.g * t.g : t.g);
    if (t.by_difference) {
      const auto from = [](double before, double beta, double now) {
        const auto old_moment = static_cast<float>(before);
        return old_moment +
               (1.0F - static_cast<float>(beta)) * (static_cast<float>(now) - old_moment);
      };
      e.m = from(old.m, t.beta1, t.g);
      e.v = from(old.v, t.beta2, t.g * t.g);
    }
    const Element& used = t.old_moments ? old : e;
    double correction1 = 1 - std::pow(t.beta1, t.step1);
    double correction2 = 1 - std::pow(t.beta2, t.step2);
    if (t.swapped) std::swap(correction1, correction2);
    const double square = used.v / correction2;
    const double root = t.corrected_root ? std::sqrt(used.v) / correction2 : std::sqrt(square);
    e.moved -= t.learning_rate * used.m / correction1 /
               (t.root_last ? std::sqrt(square + t.epsilon) : root + t.epsilon);
    if (t.keeps_moments) e.m = t.m, e.v = t.v;
    if (!t.stores_corrected) continue;
    e.m /= 1 - std::pow(t.beta1, t.step1);
    e.v /= 1 - std::pow(t.beta2, t.step2);
  }
  return e;
}

constexpr double kLate = 1e9;  // a step when nothing is left to be corrected

using Slip = void (*)(Terms& t);
constexpr std::pair<const char*, Slip> kSlips[] = {
    {"matches Adam without bias correction: divide both moments by 1 - beta^step, in every step",
     [](Terms& t) { t.step1 = t.step2 = kLate; }},
    {"the first moment is not corrected: divide it by 1 - beta1^step",
     [](Terms& t) { t.step1 = kLate; }},
    {"the second moment is not corrected: divide it by 1 - beta2^step",
     [](Terms& t) { t.step2 = kLate; }},
    {"the step is off by one: bias correction as in the next update; step counts from 1",
     [](Terms& t) { ++t.step1, ++t.step2; }},
    {"the step is off by one: bias correction as in the previous update; step counts from 1",
     [](Terms& t) { --t.step1, --t.step2; }},
    {"the corrections stay as they are after a million steps: step may be any number",
     [](Terms& t) { t.step1 = t.step2 = std::min(t.step1, 1e6); }},
    {"step does not fit into an int: it is an int64_t, and may be above 2^31",
     [](Terms& t) { t.step1 = t.step2 = static_cast<int32_t>(static_cast<int64_t>(t.step1)); }},
    {"the corrections are swapped: divide m by 1 - beta1^step, and v by 1 - beta2^step",
     [](Terms& t) { t.swapped = true; }},
    {"a moment is computed as old + (1 - beta) (new - old): where the old one is much larger, "
     "the new one is lost to rounding. Weight both and add them, as in the formula",
     [](Terms& t) { t.by_difference = true; }},
    {"the root of the second moment is corrected: divide v by its correction, then take the root",
     [](Terms& t) { t.corrected_root = true; }},
    {"epsilon is inside the square root: it is added after the root",
     [](Terms& t) { t.root_last = true; }},
    {"epsilon is added before the second moment is corrected: correct, take the root, then add it",
     [](Terms& t) { t.epsilon /= std::sqrt(1 - std::pow(t.beta2, t.step2)); }},
    {"the second moment is a mean of gradients: it should be of their squares",
     [](Terms& t) { t.square = false; }},
    {"the update uses the moments as they were before it: compute the new ones first",
     [](Terms& t) { t.old_moments = true; }},
    {"the two betas are swapped: beta1 is for the mean of gradients, beta2 for that of squares",
     [](Terms& t) { std::swap(t.beta1, t.beta2); }},
    {"the second moment decays by beta1; it should decay by beta2",
     [](Terms& t) { t.one_decay = true; }},
    {"in the second moment, the new square weighs 1 - beta1; it should weigh 1 - beta2",
     [](Terms& t) { t.one_weight = true; }},
    {"epsilon is 1e-8 whatever the optimizer's configuration says",
     [](Terms& t) { t.epsilon = 1e-8; }},
    {"beta1 is 0.9 whatever the optimizer's configuration says", [](Terms& t) { t.beta1 = 0.9; }},
    {"beta2 is 0.999 whatever the optimizer's configuration says",
     [](Terms& t) { t.beta2 = 0.999; }},
    {"the moments are as they were: store the new ones for the next step",
     [](Terms& t) { t.keeps_moments = true; }},
    {"the learning rate is missing", [](Terms& t) { t.learning_rate = 1; }},
    {"elements whose gradient is 0 were left out: their moments still shrink, and the weights "
     "still move by them",
     [](Terms& t) { t.skip_zero = true; }},
    {"the weights move up the gradient: subtract", [](Terms& t) { t.learning_rate *= -1; }},
    {"the weights do not move, although the moments are new: is the new weight stored?",
     [](Terms& t) { t.learning_rate = 0; }},
    {"the moments are stored with their bias correction; the next step corrects them once more: "
     "store them uncorrected",
     [](Terms& t) { t.stores_corrected = true; }},
    {"every element was updated twice: do two threads have the same elements?",
     [](Terms& t) { t.times = 2; }}};

Numbers results_of(const Update& u, double Element::*value, Slip slip = nullptr) {
  const auto [beta1, beta2, epsilon, learning_rate] = u.constants;
  const auto step = static_cast<double>(u.step);
  Numbers results;
  for (size_t i = 0; i < u.count(); ++i) {
    Terms t{u.g.values()[i],
            u.m.values()[i],
            u.v.values()[i],
            beta1,
            beta2,
            epsilon,
            learning_rate,
            step,
            step};
    if (slip != nullptr) slip(t);
    results.push_back(updated(t).*value);
  }
  return results;
}

/// Ends the test if some elements were updated and others not. Zero gradients are another matter.
void expect_all_updated(const Update& u, const Numbers& got, const Numbers& first_moment) {
  const Numbers wanted = results_of(u, &Element::moved);
  size_t never = 0;
  size_t wrong = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    if (u.g.values()[i] == 0) continue;
    never += got[i] == 0 && first_moment[i] == u.m.values()[i] && std::abs(wanted[i]) > 1e-8;
    wrong += std::abs(got[i] - wanted[i]) > 1e-3 * std::abs(wanted[i]) + 1e-8;
  }
  if (never > 0 && wrong == never)
    stop(
        fmt::format("{} of {} elements were never updated: a thread begins at its number in the "
                    "grid, blockIdx.x * blockDim.x + threadIdx.x, and advances by as many as the "
                    "grid has threads, gridDim.x * blockDim.x, while it is below count",
                    never, got.size()));
}

void judge_numbers(const Update& u, const Parcel& result, const Options& options) {
  const auto expect_right = [&](const std::string& what, const Numbers& got, double Element::*value,
                                double relative, auto absolute) {
    Numbers tolerance = results_of(u, value);
    for (size_t i = 0; i < u.count(); ++i)
      tolerance[i] = relative * std::abs(tolerance[i]) + absolute(i);
    const auto mistakes = [&] {
      std::vector<Mistake> all;
      for (const auto& [message, slip] : kSlips)
        all.push_back({results_of(u, value, slip), message});
      return all;
    };
    const std::string if_not_finite =
        what +
        ": not finite: a division by 0, as without epsilon or from a bias correction with step 0, "
        "or memory that holds no number?";
    expect_numbers(got,
                   {what, results_of(u, value), tolerance, place_in_row(1, "", "element"), mistakes,
                    if_not_finite},
                   options);
  };
  Numbers change = to_doubles(result.tensor("parameters"));
  for (size_t i = 0; i < u.count(); ++i) change[i] -= double{u.w.values()[i]};
  expect_all_updated(u, change, to_doubles(result.tensor("first_moment")));
  // 1 - beta2^step keeps four digits when it is computed in float: that is not a mistake here.
  expect_right("the change of the weights", change, &Element::moved, 2e-4,
               [&](size_t i) { return 1.2e-7 * std::abs(u.w.values()[i]); });
  expect_right(
      "the first moment", to_doubles(result.tensor("first_moment")), &Element::m, 0,
      [&](size_t i) { return 1e-6 * (std::abs(u.m.values()[i]) + std::abs(u.g.values()[i])); });
  expect_right("the second moment", to_doubles(result.tensor("second_moment")), &Element::v, 0,
               [&](size_t i) {
                 const double g = u.g.values()[i];
                 return 1e-6 * (u.v.values()[i] + g * g);
               });
}

void judge_work(double count, const Parcel& result) {
  expect_at_most(result, "read", 4 * count,
                 "an array is read more than once: keep what was read in a variable, also the new "
                 "moments, and write these at the end\nnumbers that were read:");
  expect_at_most(result, "written", 3 * count,
                 "an array is written more than once: work in variables, and write parameters and "
                 "moments once\nnumbers that were written:");
  if (count < 100'000) return;
  expect_at_most(
      result, "most_read", 4 * std::ceil(count / 1000),
      "a few threads update everything: each element should have its own thread, as far as the "
      "grid allows, and in a long array no thread should have more than a thousandth; are there "
      "enough blocks?\nnumbers of the four arrays that one thread has read:");
}

void judge(const std::vector<Update>& updates, const Options& options = {}) {
  std::vector<KernelCall> calls;
  for (const Update& u : updates) {
    const auto judge_update = [&](const Parcel& result) {
      judge_numbers(u, result, options);
      judge_work(static_cast<double>(u.count()), result);
    };
    calls.push_back({fmt::format("{} elements, step {}", u.count(), u.step), u.count() > 0,
                     Parcel(), judge_update});
    Parcel& input = calls.back().input;
    input.set("constants", Numbers(u.constants.begin(), u.constants.end()));
    input.set("step", static_cast<double>(u.step));
    input.set("gradients", u.g);
    input.set("parameters", u.w);
    input.set("first_moment", u.m);
    input.set("second_moment", u.v);
  }
  judge_kernels("adam", calls, options);
}

TEST(TaskC3, BiasIsCorrectedInEveryStep) {
  std::vector<Update> updates;
  for (int64_t step : std::initializer_list<int64_t>{1, 1, 2, 3, 40, 1000, 1001, 5000, 100'000,
                                                     3'000'000'007, 7, 1})
    updates.push_back(draw_update(43, step, 10 * updates.size()));
  judge(updates);
}

TEST(TaskC3, ConstantsComeFromTheConfiguration) {
  // Epsilons that matter and some that do not; several optimizers at the same step, in turn.
  constexpr std::array<float, 4> kConstants[] = {
      {0.9F, 0.999F, 0.2F, 0.01F},  {0.9F, 0.999F, 1e-3F, 0.01F}, {0.9F, 0.999F, 1e-8F, 0.01F},
      {0.5F, 0.75F, 1e-8F, 0.003F}, {0.8F, 0.75F, 1e-5F, 0.5F},   {0.8F, 0.99F, 1e-8F, 1e-4F},
      {0.0F, 0.9F, 1e-8F, 0.01F},   {0.95F, 0.5F, 1e-8F, 0.01F},  {0.0F, 0.0F, 1e-5F, 0.01F},
      {0.9F, 0.999F, 1e-8F, 0.0F},  {0.95F, 0.99999F, 1e-8F, 1},  {0.9F, 0.999999F, 1e-8F, 1e-5F}};
  std::vector<Update> updates;
  for (int64_t step : {1, 2, 2, 300, 20'000, 400'000})
    for (const auto& constants : kConstants)
      updates.push_back(draw_update(43, step, 10 * updates.size(), constants));
  updates.push_back(draw_update(43, 3'000'000, 1, {0.9F, 0.9999999F, 1e-8F, 0.01F}));
  judge(updates);
}

TEST(TaskC3, ArraysOfAnyLength) {
  std::vector<Update> updates;
  for (int64_t count : {1, 0, 2, 127, 128, 129, 130, 131, 1000, 33, 0, 1})
    updates.push_back(draw_update(count, 2, 10 * updates.size()));
  judge(updates);
}

TEST(TaskC3, MoreElementsThanThreads) {
  // A short one first, and lengths just above and just below a multiple of what a grid can hold.
  judge({draw_update(200, 3, 20), draw_update(100'000, 3, 40), draw_update(140'001, 3, 0),
         draw_update(3 * (1 << 17) - 1, 2, 10), draw_update((1 << 20) + 5, 3, 30)});
}

TEST(TaskC3, NothingElseIsTouched) {
  for (const int fence : kFences)
    judge({draw_update(300, 2, 0), draw_update(1, 2, 0), draw_update(129, 2, 0)}, {.fence = fence});
}

}  // namespace
}  // namespace lab01cuda::task_c3
