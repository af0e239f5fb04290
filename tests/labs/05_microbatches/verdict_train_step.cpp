// Verdict on task 6: one step of a pipeline in several waves. A wrong divisor is plain to see in
// the gradients, and under SGD; Adam would hide it.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "common/tensor/error.h"
#include "tests/labs/05_microbatches/verdict_plans.h"
#include "tests/labs/05_microbatches/verdict_step.h"

namespace lab05 {
namespace {

using lab::grading::Functions;
using lab::grading::GroupOptions;
using lab::grading::Parcel;

GroupOptions simulated(uint64_t seed) { return late(seed, Functions::kGiven); }
GroupOptions gloo() { return over_gloo(Functions::kGiven); }

StepCase gpipe_case(const Size& size, int waves) {
  return {.schedule = with_all_messages(gpipe_plan(size), /*posted_sends=*/false),
          .microbatches = full_microbatches(waves * size.microbatches)};
}

StepCase one_f_one_b_case(const Size& size, int waves) {
  return {.schedule = with_all_messages(one_f_one_b_plan(size), /*posted_sends=*/true),
          .microbatches = unequal_microbatches(waves * size.microbatches)};
}

std::vector<Parcel> run(const StepCase& c, const GroupOptions& options) {
  std::vector<Parcel> results = lab::grading::student_group("train_step", c.inputs(), options);
  expect_one_update(results, c);
  return results;
}

/// Runs the case and judges its first step.
void expect_first_step(const StepCase& c, const GroupOptions& options) {
  const std::vector<Parcel> results = run(c, options);
  const Parts p = c.parts();
  expect_gradients(results, c, p);
  expect_mean_loss(results, c, p);
}

/// Several steps, and all that can be told of them.
void expect_training(const StepCase& c, const GroupOptions& options) {
  const std::vector<Parcel> results = run(c, options);
  const Parts p = c.parts();
  expect_gradients(results, c, p);
  expect_mean_loss(results, c, p);
  expect_weights(results, c, p);
  expect_messages(results, c);
}

TEST(Task6, OneWaveOfGpipe) { expect_first_step(gpipe_case({3, 4}, 1), simulated(61)); }

TEST(Task6, OneWaveOfOneForwardOneBackward) {
  expect_first_step(one_f_one_b_case({3, 4}, 1), simulated(62));
}

TEST(Task6, SeveralWavesAreOneStep) {
  expect_first_step(one_f_one_b_case({2, 3}, 3), simulated(63));
}

TEST(Task6, FewerMicrobatchesThanStages) {
  expect_first_step(one_f_one_b_case({6, 2}, 2), simulated(64));
}

TEST(Task6, ReturnsTheMeanLossOfAllWaves) {
  const StepCase c = one_f_one_b_case({2, 2}, 2);
  expect_mean_loss(lab::grading::student_group("train_step", c.inputs(), simulated(65)), c,
                   c.parts());
}

TEST(Task6, LeftoverGradientsDoNotMatter) {
  StepCase c = gpipe_case({2, 2}, 2);
  c.leftover = 0.25F;
  expect_first_step(c, simulated(66));
}

TEST(Task6, ClipsTheWholeModelsNorm) {
  StepCase c = one_f_one_b_case({3, 2}, 2);
  c.max_norm = 0.5 * norm(c.parts().sum());
  expect_first_step(c, simulated(67));
}

TEST(Task6, ShortGradientsAreNotClipped) {
  StepCase c = one_f_one_b_case({3, 2}, 2);
  c.max_norm = 1.1 * norm(c.parts().sum());
  expect_first_step(c, simulated(68));
}

TEST(Task6, OneStageIsLab01) {
  StepCase c = one_f_one_b_case({1, 2}, 2);
  c.max_norm = 0.5 * norm(c.parts().sum());
  expect_training(c, simulated(69));
}

TEST(Task6, SeveralStepsWithSgd) {
  StepCase c = one_f_one_b_case({3, 4}, 1);
  c.steps = 3;
  expect_training(c, simulated(70));
}

TEST(Task6, SeveralStepsWithAdam) {
  StepCase c = gpipe_case({4, 3}, 2);
  c.optimizer = "adam";
  c.learning_rate = 0.01;
  c.steps = 3;
  c.max_norm = 0.5 * norm(c.parts().sum());
  expect_training(c, simulated(71));
}

TEST(Task6, OverGloo) {
  StepCase c = one_f_one_b_case({3, 4}, 2);
  c.optimizer = "adam";
  c.learning_rate = 0.01;
  c.steps = 2;
  c.max_norm = 0.5 * norm(c.parts().sum());
  expect_training(c, gloo());
}

/// That `count` microbatches are refused, by every rank and before anything is done.
void expect_refusal(StepCase c, int count) {
  const int m = c.schedule.microbatches;
  c.microbatches = full_microbatches(count);
  const std::vector<Parcel> results =
      lab::grading::student_group("refusal", c.inputs(), simulated(72));
  for (size_t rank = 0; rank < results.size(); ++rank) {
    const double waves = results[rank].number("waves");
    if (waves > 0 || results[rank].number("updates") > 0)
      lab::grading::stop(fmt::format(
          "rank {}: {} microbatches are not a multiple of the schedule's {}; train_step "
          "must throw lab::Error before anything is done, and has {}",
          rank, count, m, waves > 0 ? "run a wave" : "updated the weights"));
    if (results[rank].text("error").empty())
      lab::grading::stop(fmt::format(
          "rank {}: {} microbatches are not a multiple of the schedule's {}: train_step must throw "
          "lab::Error (lab::require), and returned",
          rank, count, m));
  }
}

TEST(Task6, RefusesAnIncompleteWave) {
  expect_refusal(gpipe_case({2, 3}, 1), 2);
  expect_refusal(gpipe_case({2, 3}, 1), 4);
}

TEST(Task6, RefusesNoMicrobatchesAtAll) { expect_refusal(gpipe_case({2, 3}, 1), 0); }

}  // namespace
}  // namespace lab05
