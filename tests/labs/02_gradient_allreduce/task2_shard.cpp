// Task 2: the shards of all ranks, judged together.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "common/data/sampler.h"
#include "tests/grading/shares.h"
#include "tests/grading/verdict.h"

namespace lab02::task2 {
namespace {

using lab::grading::Numbers;
using lab::grading::Parcel;
using lab::grading::Sequences;

struct Epoch {
  Sequences order;
  int world_size = 3;
};

/// An epoch of `count` sequences, as the program's Sampler would make it.
Epoch epoch(int64_t count, int world_size, uint64_t seed, int64_t number = 0) {
  return {lab::epoch_order(count, seed, number), world_size};
}

std::vector<Sequences> shares(const Epoch& e, const Parcel& result) {
  std::vector<Sequences> all;
  for (size_t r = 0; r < static_cast<size_t>(e.world_size); ++r) {
    const Numbers share = result.numbers("share" + std::to_string(r));
    if (share != result.numbers("again" + std::to_string(r)))
      lab::grading::stop(fmt::format(
          "rank {}: called twice with the same arguments, shard returns two different shards: it "
          "must depend on nothing but order, rank and world_size",
          r));
    all.emplace_back(share.begin(), share.end());
  }
  return all;
}

void judge(const Epoch& e, const Parcel& result) {
  const std::vector<Sequences> all = shares(e, result);
  const std::string wrong = lab::grading::unfair_shares(e.order, all, "rank");
  if (wrong.empty()) return;
  std::string text = wrong + "\norder: " + lab::grading::in_words(e.order);
  for (size_t r = 0; r < all.size(); ++r)
    text += fmt::format("\nrank {}:{}", r, lab::grading::in_words(all[r]));
  lab::grading::stop(text);
}

/// One epoch after the other in one process; each shard depends on its own arguments alone.
void expect_partitions(const std::vector<Epoch>& epochs) {
  std::vector<lab::grading::Call> calls;
  for (const Epoch& e : epochs) {
    Parcel input;
    input.set("order", Numbers(e.order.begin(), e.order.end()));
    input.set("world_size", e.world_size);
    calls.push_back(
        {.scenario = "shards",
         .inputs = {input},
         .name = fmt::format("sequences: {}, ranks: {}", e.order.size(), e.world_size)});
  }
  judge_calls(calls, {.network = lab::grading::Network::kNone},
              [&](size_t k, const std::vector<Parcel>& ranks) { judge(epochs[k], ranks[0]); });
}

TEST(Task2, SharesAreDisjointAndComplete) { expect_partitions({epoch(12, 3, 1)}); }

TEST(Task2, TheRestIsLeftOut) { expect_partitions({epoch(14, 3, 2), epoch(103, 4, 3)}); }

TEST(Task2, OneRankReadsAll) { expect_partitions({epoch(7, 1, 5), epoch(1, 1, 5)}); }

TEST(Task2, FewerSequencesThanRanks) {
  expect_partitions({epoch(2, 3, 6), epoch(0, 3, 6), epoch(3, 3, 6), epoch(1, 5, 6)});
}

TEST(Task2, SequencesNotPositions) {
  std::vector<Epoch> epochs = {epoch(11, 3, 7), epoch(12, 3, 7)};
  for (Epoch& e : epochs)
    for (int64_t& sequence : e.order) sequence = 5'000'000'000 + 3 * sequence;
  expect_partitions(epochs);
}

TEST(Task2, EveryEpochIsShuffledAnew) {
  std::vector<Epoch> epochs;
  for (int64_t number = 0; number < 4; ++number) epochs.push_back(epoch(16, 3, 8, number));
  expect_partitions(epochs);
}

TEST(Task2, AnySizes) {
  std::vector<Epoch> epochs;
  for (int world_size = 1; world_size <= 7; ++world_size)
    for (const int64_t count :
         {world_size - 1, 4 * world_size, 4 * world_size + world_size / 2, 25 + world_size})
      epochs.push_back(epoch(count, world_size, lab::grading::scenario_seed() + 9));
  for (const int world_size : {49, 103, 300})  // 1.0 / 49 * 49 is less than 1
    for (const int64_t count : {world_size, 3 * world_size + 2})
      epochs.push_back(epoch(count, world_size, lab::grading::scenario_seed() + 10));
  epochs.push_back(epoch(5'003, 3, lab::grading::scenario_seed() + 11));
  epochs.push_back(epoch(140'001, 2, lab::grading::scenario_seed() + 12));
  expect_partitions(epochs);
}

}  // namespace
}  // namespace lab02::task2
