// Task 4: what each rank's optimizer gets, and where the weights go. A wrong divisor is plain to
// see in the gradients; Adam would hide it.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/grading/training_judge.h"
#include "tests/labs/02_gradient_allreduce/means.h"

namespace lab02::task4 {
namespace {

using lab::grading::JobOptions;
using lab::grading::Operation;
using lab::grading::Parcel;
using lab::grading::StepContract;
using lab::grading::stop;
using lab::grading::TrainingCase;

/// Every rank averages once and before its update.
void expect_averaging(const std::vector<Parcel>& ranks, size_t step) {
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    const std::string events = ranks[rank].text(fmt::format("events.{}", step));
    const size_t average = events.find("average");
    if (average != std::string::npos && average > events.find("update"))
      stop(
          fmt::format("rank {}: the optimizer stepped before the gradients were averaged: it got "
                      "this rank's own\nin step {}: {}",
                      rank, step + 1, events));
  }
}

/// Two all_reduces a step, of the gradients and one number.
void expect_traffic(const std::vector<Parcel>& ranks, size_t step) {
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    const std::vector<Operation> sent =
        operations_of(ranks[rank].part(fmt::format("traffic.{}", step)));
    // The flat buffer has gaps between tensors, for alignment.
    const auto weights = static_cast<uint64_t>(ranks[rank].tensor("start").numel());
    const uint64_t gaps = 64 * 64;
    expect_all_reduces(
        sent, rank,
        {.bytes = (weights + gaps + 1) * sizeof(float),
         .if_too_many = "the weights are right, but a step takes more than two all_reduces: pass "
                        "model.gradients() to average_gradients as one tensor; neither weights nor "
                        "the state of the optimizer need a message",
         .if_too_large =
             "the weights are right, but more travels than the gradients and the number "
             "of targets"});
    if (ranks.size() == 1) continue;  // it needs no average
    // What a student's code cannot fake: the gradients did travel.
    uint64_t bytes = 0;
    for (const Operation& operation : sent) bytes += operation.bytes;
    if (bytes < weights * sizeof(float))
      stop(
          fmt::format("rank {} has sent fewer bytes than its gradients have: every rank must "
                      "contribute its own in every step\nrank {}: {}",
                      rank, rank, in_words(sent)));
  }
}

void judge(const TrainingCase& c, const std::vector<Parcel>& ranks) {
  for (size_t step = 0; step < c.steps.size(); ++step) expect_averaging(ranks, step);
  judge_steps(c, ranks,
              {.gradient = StepContract::Gradient::kOfAllReplicas,
               .loss = StepContract::Loss::kOwnMean,
               .loss_of_every_microbatch = true,
               .how_to_average = "call average_gradients before the update, and let it write into "
                                 "model.gradients()",
               .how_to_clip = "call lab::clip_gradients after averaging and before the update"});
  for (size_t step = 0; step < c.steps.size(); ++step) expect_traffic(ranks, step);
}

void expect_training(int ranks, uint64_t seed, const JobOptions& options) {
  judge_training({.replicas = ranks, .microbatches = 5, .unequal_counts = true}, seed, "train_step",
                 options, judge);
}

JobOptions given(JobOptions options) {
  options.given = {"3"};
  return options;
}

TEST(Task4, ThreeRanks) { expect_training(3, 40, given({})); }

TEST(Task4, OneRankIsLab01) { expect_training(1, 41, given({})); }

TEST(Task4, TwoRanksWithLateMessages) {
  expect_training(2, 42, given(lab::grading::late_messages(45)));
}

TEST(Task4, FiveRanksInAnyOrder) { expect_training(5, 43, given(lab::grading::late_messages(46))); }

}  // namespace
}  // namespace lab02::task4
