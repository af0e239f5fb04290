// Verdict on task 4: what each stage's optimizer gets, where the weights go, what travels.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "common/tensor/error.h"
#include "tests/labs/04_pipeline_1f1b/verdict_messages.h"
#include "tests/labs/04_pipeline_1f1b/verdict_step_judges.h"
#include "tests/labs/pipeline/every_rank.h"

namespace lab04 {
namespace {

using lab::grading::Functions;
using lab::grading::GroupOptions;
using lab::grading::Parcel;

GroupOptions late(uint64_t seed) { return pipeline_tests::late(seed, Functions::kGiven); }

void expect_steps(const StepCase& c, const GroupOptions& options) {
  const std::vector<Parcel> results =
      lab::grading::student_group("train_step", c.inputs(), options);
  const StepOracle oracle(c);
  expect_one_update(results, c);
  expect_one_loss(results, c);
  expect_gradients(results, oracle, c);
  expect_losses(results, oracle, c);
  expect_displacement(results, oracle, c);
  const lab::TokenBatch batch = c.batch(0);
  const auto steps = static_cast<uint64_t>(c.steps);
  expect_step_messages(results, steps, steps * hidden_bytes(batch.batch, batch.length),
                       c.max_norm > 0);
  confirm_step_bits(results, oracle, c);
}

/// The norm of the first gradient of the whole model, and of the largest stage's share.
struct Norms {
  explicit Norms(const StepCase& c) {
    const StepOracle oracle(c);
    const Numbers gradients = oracle.unclipped();
    whole = norm(gradients);
    for (size_t s = 0; s < c.ranks(); ++s)
      largest_stage = std::max(largest_stage, norm(oracle.layout.part(gradients, s)));
  }
  double whole = 0;
  double largest_stage = 0;
};

TEST(Task4, ThreeStages) {
  expect_steps({.counts = {2, 2, 2}}, pipeline_tests::buffered(Functions::kGiven));
}

TEST(Task4, SendsBlock) { expect_steps({.counts = {2, 2, 2}, .steps = 3}, late(41)); }

TEST(Task4, LeftoverGradientsDoNotMatter) {
  expect_steps({.counts = {2, 2, 2}, .leftover = 0.25F}, late(42));
}

TEST(Task4, PaddingIsNoTarget) {
  expect_steps({.counts = {3, 2, 1}, .lengths = {10, 4, 1}}, late(43));
}

TEST(Task4, OneStageIsLab01) {
  StepCase c{.counts = {6}, .steps = 2, .optimizer = "adam", .learning_rate = 0.01};
  c.max_norm = 0.5 * Norms(c).whole;
  expect_steps(c, late(44));
}

TEST(Task4, TwoStages) { expect_steps({.counts = {5, 1}, .steps = 3}, late(45)); }

TEST(Task4, SixStages) { expect_steps({.counts = {1, 1, 1, 1, 1, 1}, .steps = 3}, late(46)); }

TEST(Task4, ClipsByTheNormOfTheWholeModel) {
  StepCase c{.counts = {2, 2, 2}};
  c.max_norm = 0.2 * Norms(c).whole;
  expect_steps(c, late(47));
}

TEST(Task4, NoStageAloneIsTooLong) {
  StepCase c{.counts = {2, 2, 2}};
  const Norms norms(c);
  c.max_norm = (norms.whole + norms.largest_stage) / 2;
  lab::require(norms.largest_stage < 0.99 * norms.whole, "one stage has all of the gradient");
  expect_steps(c, late(48));
}

TEST(Task4, ShortGradientsAreNotClipped) {
  StepCase c{.counts = {2, 2, 2}};
  c.max_norm = 1.05 * Norms(c).whole;
  expect_steps(c, late(49));
}

TEST(Task4, ThreeProcessesWithAdam) {
  StepCase c{.counts = {2, 3, 1}, .steps = 4, .optimizer = "adam", .learning_rate = 0.01};
  c.max_norm = 0.5 * Norms(c).whole;
  expect_steps(c, pipeline_tests::over_gloo(Functions::kGiven));
}

}  // namespace
}  // namespace lab04
