// Task 5: one number, weighed by targets.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <random>

#include "tests/labs/02_gradient_allreduce/means.h"

namespace lab02::task5 {
namespace {

using lab::grading::JobOptions;
using lab::grading::Operation;
using lab::grading::Parcel;

struct Case {
  Numbers losses;  // per rank
  Numbers targets;
};

void judge(const Case& c, const std::vector<Parcel>& ranks) {
  RankMeans means{.values = {}, .targets = c.targets};
  for (const double loss : c.losses) means.values.push_back({loss});
  const std::vector<Numbers> got = numbers_of(ranks, "mean");
  expect_on_every_rank(got, [&](size_t rank) { return means.expected(rank, "the loss"); });
  expect_same_bits(got, "the mean loss");
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    std::vector<Operation> sent = operations_of(ranks[rank]);
    std::erase_if(sent, [](const Operation& o) { return o.kind == lab::OpKind::kRecv; });
    uint64_t bytes = 0;
    uint64_t reduced = 0;  // floats
    for (const Operation& operation : sent) {
      bytes += operation.bytes;
      if (operation.kind == lab::OpKind::kAllReduce) reduced += operation.bytes;
    }
    if (sent.size() > 2 || bytes > 4 * sizeof(double) || reduced > 2 * sizeof(float))
      lab::grading::stop(fmt::format(
          "the loss is right, but this rank sends too much: two numbers are enough\nrank {}: {}",
          rank, in_words(sent)));
  }
}

void expect_mean_losses(const std::vector<Case>& cases, JobOptions options) {
  options.given = {"3"};
  std::vector<lab::grading::Call> calls;
  for (const Case& c : cases) {
    lab::grading::Call call{.scenario = "average_loss",
                            .inputs = {},
                            .name = fmt::format("targets {}", fmt::join(c.targets, ", "))};
    for (size_t r = 0; r < c.losses.size(); ++r) {
      Parcel input;
      input.set("loss", c.losses[r]);
      input.set("targets", c.targets[r]);
      call.inputs.push_back(input);
    }
    calls.push_back(call);
  }
  judge_calls(calls, options,
              [&](size_t k, const std::vector<Parcel>& ranks) { judge(cases[k], ranks); });
}

TEST(Task5, ThreeRanks) {
  expect_mean_losses({{{2.0, 3.0, 5.5}, {51, 51, 51}},
                      {{2.0, 4.0, 7.5}, {255, 51, 10}},
                      {{2.7, 0.0, 1.3}, {30, 0, 17}},
                      {{0.0, 2.5, 1.3}, {20, 10, 10}},  // a rank that predicts everything right
                      {{0.0, 0.0, 3.1}, {0, 0, 4}},
                      {{0.0, 2.5, 0.0}, {0, 1, 0}},
                      {{1e4, 3e5, 2.0}, {5, 2, 9}},
                      {{0.0, 0.0, 0.0}, {0, 0, 0}},
                      {{1.1, 2.3, 3.7}, {255, 51, 10}},
                      {{3.3, 0.1, 0.7}, {9'000'001, 3, 77}},
                      {{3.3, 0.1, 0.7}, {5e9, 2e9, 1e9}}},
                     {});
}

TEST(Task5, LateMessagesInAnyOrder) {
  expect_mean_losses({{{2.5, 0.0}, {30, 0}}, {{0.0, 0.0}, {0, 0}}, {{0.3, 9.1}, {5, 7}}},
                     lab::grading::late_messages(51));
  expect_mean_losses(
      {{{1.7, 2.9, 0.3, 7.7, 4.1}, {3, 1, 4, 1, 5}}, {{0.0, 2.9, 0.0, 7.7, 4.1}, {0, 9, 0, 2, 6}}},
      lab::grading::late_messages(52));
  // Many numbers that must be rounded: added up in another order, they give other bits.
  std::mt19937_64 random(lab::grading::scenario_seed() + 53);
  std::vector<Case> many(8);
  for (Case& c : many)
    for (int r = 0; r < 17; ++r) {
      c.losses.push_back(static_cast<double>(random() % 1'000'000) / 99'991);
      c.targets.push_back(1 + static_cast<double>(random() % 999));
    }
  expect_mean_losses(many, lab::grading::late_messages(53));
}

TEST(Task5, OneRank) { expect_mean_losses({{{3.25}, {7}}, {{0.0}, {0}}, {{1.5}, {7}}}, {}); }

}  // namespace
}  // namespace lab02::task5
