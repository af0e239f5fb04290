// Verdict on task 4: what each rank's optimizer gets, and where the weights go. A wrong divisor is
// plain to see in the gradients, and under SGD; Adam would hide it.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "common/tensor/error.h"
#include "tests/labs/01_single_gpu/random_input.h"
#include "tests/labs/02_gradient_allreduce/tiny_model.h"
#include "tests/labs/02_gradient_allreduce/verdict_step_judges.h"

namespace lab02 {
namespace {

using lab::TokenBatch;
using lab::grading::Functions;
using lab::grading::GroupOptions;
using lab::grading::Parcel;

TokenBatch tokens(const std::vector<int64_t>& lengths, uint64_t seed) {
  return lab01::random_tokens(lengths, kContext, kVocab, seed);
}

/// Three ranks with one full sequence each.
StepCase one_sequence_each() {
  return {.microbatches = {{tokens({8}, 41)}, {tokens({8}, 42)}, {tokens({8}, 43)}}};
}

StepCase unequal_targets() {
  return {.microbatches = {{tokens({8, 8}, 44)}, {tokens({3}, 45)}, {tokens({5, 6}, 46)}}};
}

/// Ranks with unequally many microbatches of unequally many targets.
StepCase accumulated() {
  return {.microbatches = {{tokens({8, 8, 8}, 47), tokens({3}, 48)},
                           {tokens({5}, 49)},
                           {tokens({8}, 50), tokens({2}, 51), tokens({4, 7}, 52)}}};
}

/// The sequences of all ranks as one microbatch of one process.
StepCase as_one_process(const StepCase& c) {
  StepCase one = c;
  TokenBatch all{0, kContext, {}};
  for (const std::vector<TokenBatch>& own : c.microbatches)
    for (const TokenBatch& batch : own) {
      all.batch += batch.batch;
      all.tokens.insert(all.tokens.end(), batch.tokens.begin(), batch.tokens.end());
    }
  one.microbatches = {{all}};
  return one;
}

GroupOptions gloo() { return over_gloo(Functions::kGiven); }
GroupOptions late(uint64_t seed) { return simulated(seed, Functions::kGiven); }

std::vector<Parcel> run(const StepCase& c, const GroupOptions& options) {
  std::vector<Parcel> results = lab::grading::student_group("train_step", c.inputs(), options);
  expect_one_update(results, c);
  return results;
}

/// Runs the case and judges its first step.
void expect_first_step(const StepCase& c, const GroupOptions& options) {
  const StepParts p(c);
  expect_gradients(run(c, options), p, c);
}

TEST(Task4, GradientsAreAveraged) { expect_first_step(one_sequence_each(), gloo()); }

TEST(Task4, EveryTargetCountsTheSame) { expect_first_step(unequal_targets(), gloo()); }

TEST(Task4, MicrobatchesAndRanks) { expect_first_step(accumulated(), late(41)); }

/// The gradients of the first step, and every rank's own loss: 0 where there is nothing to predict.
void expect_gradients_and_losses(const StepCase& c, const GroupOptions& options) {
  const StepParts p(c);
  const std::vector<Parcel> results = run(c, options);
  expect_gradients(results, p, c);
  expect_own_losses(results, p);
}

TEST(Task4, ARankWithoutTargetsTakesPart) {
  StepCase c = unequal_targets();
  c.microbatches[1] = {tokens({1}, 53)};  // a single token: nothing to predict
  expect_gradients_and_losses(c, late(47));
}

TEST(Task4, ARankWithoutMicrobatchesTakesPart) {
  StepCase c = unequal_targets();
  c.microbatches[1] = {};
  expect_gradients_and_losses(c, late(48));
}

TEST(Task4, LeftoverGradientsDoNotMatter) {
  StepCase c = one_sequence_each();
  c.leftover = 0.25F;
  expect_first_step(c, late(42));
}

TEST(Task4, ClipsTheAverage) {
  StepCase c = unequal_targets();
  const StepParts p(c);
  c.max_norm = 0.5 * norm(p.combine([&](const auto&) { return 1 / p.total; }));
  expect_gradients(run(c, late(43)), p, c);
}

TEST(Task4, ShortAveragesAreNotClipped) {
  StepCase c = one_sequence_each();
  const StepParts p(c);
  // Longer than the average, shorter than the gradients of the single ranks.
  c.max_norm = 1.05 * norm(p.combine([&](const auto&) { return 1 / p.total; }));
  for (size_t r = 0; r < c.ranks(); ++r)
    lab::require(norm(p.of_rank(r)) > c.max_norm, "rank {}'s gradients are too short for this", r);
  expect_gradients(run(c, late(44)), p, c);
}

TEST(Task4, ReturnsTheRanksOwnLoss) {
  const StepCase c = accumulated();
  expect_own_losses(lab::grading::student_group("train_step", c.inputs(), gloo()), StepParts(c));
}

TEST(Task4, OneRankIsLab01) {
  StepCase c = accumulated();
  c.microbatches.resize(1);
  const StepParts p(c);
  const std::vector<Parcel> results = run(c, gloo());
  expect_gradients(results, p, c);
  expect_own_losses(results, p);
}

TEST(Task4, ThreeRanksEqualOneProcess) {
  StepCase c = one_sequence_each();
  c.steps = 3;
  const StepParts p(c);
  const std::vector<Parcel> results = run(c, gloo());
  expect_gradients(results, p, c);
  const std::vector<Parcel> one =
      lab::grading::reference_group("train_step", as_one_process(c).inputs(), late(45));
  expect_displacement(results, one[0], p, c);
}

/// Several steps of Adam; then all that can be told of replicas and messages.
void expect_replicas_and_traffic(StepCase c, const GroupOptions& options) {
  c.optimizer = "adam";
  c.steps = 4;
  c.learning_rate = 0.01;
  const StepParts p(c);
  c.max_norm = 0.5 * norm(p.combine([&](const auto&) { return 1 / p.total; }));
  const std::vector<Parcel> results = run(c, options);
  expect_gradients(results, p, c);
  expect_replicas(results, c);
  expect_step_traffic(results, p, c);
}

TEST(Task4, ReplicasStayTheSame) { expect_replicas_and_traffic(accumulated(), gloo()); }

TEST(Task4, ReplicasStayTheSameInAnyOrder) {
  expect_replicas_and_traffic(unequal_targets(), late(46));
}

}  // namespace
}  // namespace lab02
