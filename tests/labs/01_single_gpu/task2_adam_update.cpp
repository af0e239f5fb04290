// Task 2: single updates from any state, against right and wrong formulas in double.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tests/grading/training_case.h"
#include "tests/grading/verdict.h"
#include "tests/labs/01_single_gpu/adam_oracle.h"

namespace lab01::task2 {
namespace {

using lab::grading::Mistake;
using lab::grading::Parcel;
using lab::grading::stop;
using lab::grading::to_doubles;

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
         .name = [&](size_t i) { return fmt::format("{}, element {}", what, i); },
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
  const bool is_fresh = u.step == 1 && !u.has_moments;
  u.first_moment = is_fresh ? Tensor::zeros({u.size}) : random(0.3);
  u.second_moment = is_fresh ? Tensor::zeros({u.size}) : random(0.3);
  for (float& v : u.second_moment.values()) v = std::abs(v) + 0.001F;
  if (is_fresh) u.second_moment.fill(0.0F);
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
    if (i % 22 == 4)  // its first gradient
      u.first_moment.values()[i] = u.second_moment.values()[i] = 0;
    if (i % 22 == 14) g = u.first_moment.values()[i] = 0;  // at rest, but not the second moment
    if (i % 22 == 13 && !is_fresh) {                       // squares that a float barely holds
      g = u.first_moment.values()[i] = 3e-18F;
      u.second_moment.values()[i] = 2e-37F;
    }
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
  const lab::AdamConfig tiny{.epsilon = 1e-16F};  // smaller than the smallest gradients
  expect_updates({{.size = 203, .step = 7, .config = usual, .block = 7},
                  {.size = 203, .step = 7, .config = quick, .learning_rate = 0.003F},
                  {.size = 203, .step = 7, .config = quick, .learning_rate = 0.003F, .block = 50},
                  {.size = 1, .step = 2, .config = slow},
                  {.size = 45, .step = 2, .config = slowest},
                  {.size = 1001, .step = 999, .config = usual, .learning_rate = 1},
                  {.size = 64, .step = 1000, .config = usual, .learning_rate = 1e-5F},
                  {.size = 37, .step = 1001, .config = usual},
                  {.size = 37, .step = 1, .config = usual},
                  {.size = 37, .step = 1, .config = usual, .has_moments = true},
                  {.size = 37, .step = 2, .config = usual},
                  {.size = 37, .step = 3, .config = usual, .learning_rate = 0},  // of a warm-up
                  {.size = 21, .step = 300, .config = slow},
                  {.size = 21, .step = 5, .config = slowest},
                  {.size = 18, .step = 10'000, .config = slow},
                  {.size = 23, .step = 3, .config = no_memory},
                  {.size = 34, .step = 4, .config = tiny},
                  {.size = 29, .step = 123'456, .config = slowest},
                  {.size = 31, .step = 20'000'000, .config = slowest},
                  {.size = 31, .step = 3'000'000'007, .config = usual},
                  {.size = 33'001, .step = 5, .config = usual, .block = 1000},
                  {.size = (1 << 20) + 5, .step = 12, .config = usual}},
                 40);
}

TEST(Task2, SeveralThreadsCallItAtOnce) {
  constexpr const char* kShared =
      "static and global variables are shared by all threads; use nothing but the spans and local "
      "variables";
  constexpr int64_t kCalls = 64;
  const auto draw = [](double scale, uint64_t seed) {
    return lab::grading::draw_tensor({kCalls, 3000}, scale,
                                     1000 * lab::grading::scenario_seed() + seed);
  };
  Parcel input;
  input.set("gradients", draw(0.5, 1));
  input.set("parameters", draw(0.05, 2));
  input.set("first_moment", draw(0.5, 3));
  const Tensor second = draw(0.5, 4);
  for (float& v : second.values()) v = std::abs(v) + 0.1F;
  input.set("second_moment", second);
  const double others =
      lab::grading::run_call(
          {.scenario = "adam_update_by_threads",
           .inputs = {input},
           .name = "several threads call adam_update at once",
           .if_it_crashes = fmt::format(
               "adam_update crashes when several threads call it at once: {}", kShared)},
          {.network = lab::grading::Network::kNone})[0]
          .number("others");
  if (others > 0)
    stop(fmt::format(
        "adam_update gives other results when several threads call it at once, each with its own "
        "numbers: {}\nother results in {} of {} calls, expected 0",
        kShared, others, kCalls));
}

}  // namespace
}  // namespace lab01::task2
