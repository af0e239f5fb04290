// Verdict on task 5: the loss for the log.
#include <gtest/gtest.h>

#include <vector>

#include "tests/labs/02_gradient_allreduce/verdict_rank_means.h"

namespace lab02 {
namespace {

using lab::grading::Functions;
using lab::grading::GroupOptions;
using lab::grading::Parcel;

void expect_mean_loss(const Numbers& losses, const Numbers& targets, const GroupOptions& options) {
  RankMeans means{.values = {}, .targets = targets};
  std::vector<Parcel> inputs(losses.size());
  for (size_t r = 0; r < inputs.size(); ++r) {
    inputs[r].set("loss", losses[r]);
    inputs[r].set("targets", targets[r]);
    means.values.push_back({losses[r]});
  }
  const std::vector<Parcel> results = lab::grading::student_group("average_loss", inputs, options);
  const std::vector<Numbers> got = numbers_of(results, "mean");
  expect_on_every_rank(got, [&](size_t rank) { return means.expected(rank, "the loss"); });
  expect_same_bits(got, "the mean loss");
  expect_traffic(results,
                 {.all_reduces = 2,
                  .bytes = 4 * sizeof(float),
                  .if_too_many = "the loss is right, but one or two all_reduces are enough",
                  .if_too_large = "the loss is right, but a few numbers are enough"});
}

TEST(Task5, MeanOverThreeRanks) {
  expect_mean_loss({2.0, 3.5, 5.0}, {51, 51, 51}, over_gloo(Functions::kGiven));
}

TEST(Task5, EveryTargetCountsTheSame) {
  expect_mean_loss({2.0, 4.0, 7.5}, {255, 51, 10}, over_gloo(Functions::kGiven));
}

TEST(Task5, ARankWithoutTargetsTakesPart) {
  expect_mean_loss({2.5, 0.0}, {30, 0}, simulated(51, Functions::kGiven));
}

TEST(Task5, NoTargetsAtAll) {
  expect_mean_loss({0.0, 0.0}, {0, 0}, simulated(52, Functions::kGiven));
}

TEST(Task5, OneRank) { expect_mean_loss({3.25}, {7}, over_gloo(Functions::kGiven)); }

}  // namespace
}  // namespace lab02
