// Task 2: the shards of all ranks, judged together.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "common/data/sampler.h"
#include "tests/grading/training_oracle.h"
#include "tests/grading/verdict.h"

namespace lab02::task2 {
namespace {

using lab::grading::Numbers;
using lab::grading::Parcel;
using Sequences = std::vector<int64_t>;

struct Epoch {
  Sequences order;
  int world_size = 3;

  size_t ranks() const { return static_cast<size_t>(world_size); }
  size_t per_rank() const { return order.size() / ranks(); }
};

/// An epoch of `count` sequences, as the program's Sampler would make it.
Epoch epoch(int64_t count, int world_size, uint64_t seed, int64_t number = 0) {
  return {lab::epoch_order(count, seed, number), world_size};
}

std::vector<Sequences> shares(const Epoch& e, const Parcel& result) {
  std::vector<Sequences> all;
  for (size_t r = 0; r < e.ranks(); ++r) {
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

std::string list(const Sequences& sequences) {
  constexpr size_t kMost = 12;
  std::string text;
  for (size_t i = 0; i < std::min(sequences.size(), kMost); ++i)
    text += fmt::format(" {}", sequences[i]);
  return text.empty() ? " none" : text + (sequences.size() > kMost ? " ..." : "");
}

std::string described(const Epoch& e, const std::vector<Sequences>& all) {
  std::string text = fmt::format("\norder:  {}", list(e.order));
  for (size_t r = 0; r < all.size(); ++r) text += fmt::format("\nrank {}: {}", r, list(all[r]));
  return text;
}

bool holds(const Sequences& sequences, int64_t sequence) {
  return std::find(sequences.begin(), sequences.end(), sequence) != sequences.end();
}

std::string foreign_sequence(const Epoch& e, const std::vector<Sequences>& all) {
  for (size_t r = 0; r < all.size(); ++r)
    for (int64_t sequence : all[r])
      if (!holds(e.order, sequence))
        return fmt::format(
            "rank {} reads sequence {}, which the epoch does not have: shard returns the sequences "
            "that stand at the rank's positions of order, not the positions",
            r, sequence);
  return "";
}

/// True if each rank's shard is the whole order except for some sequences at its beginning.
bool skips_and_reads_the_rest(const Epoch& e, const std::vector<Sequences>& all) {
  for (const Sequences& share : all) {
    const auto begin =
        share.empty() ? e.order.end() : std::find(e.order.begin(), e.order.end(), share.front());
    for (size_t i = 0; i < share.size(); ++i) {
      const size_t at = static_cast<size_t>(begin - e.order.begin()) + i;
      if (share[i] != e.order[at % e.order.size()]) return false;
    }
  }
  return all[0].size() > e.per_rank();
}

std::string overlap(const Epoch& e, const std::vector<Sequences>& all) {
  const bool same = std::all_of(all.begin(), all.end(), [&](const Sequences& share) {
    return share == all[0] && !share.empty();
  });
  if (same && e.ranks() > 1)
    return "every rank reads the same sequences: they would all compute the same gradient, and "
           "the mean of equal gradients is worth no more than one of them";
  std::map<int64_t, size_t> readers;
  size_t twice = 0;
  std::string first;
  for (size_t r = 0; r < all.size(); ++r)
    for (int64_t sequence : all[r]) {
      const auto [before, is_new] = readers.emplace(sequence, r);
      if (is_new) continue;
      ++twice;
      if (first.empty())
        first = before->second == r ? fmt::format("rank {} reads sequence {} twice", r, sequence)
                                    : fmt::format("sequence {} is read by rank {} and by rank {}",
                                                  sequence, before->second, r);
    }
  if (twice == 0) return "";
  if (skips_and_reads_the_rest(e, all))
    return fmt::format(
        "every rank skips some sequences and reads all others: a constant skip is no partition, "
        "the shards overlap ({})",
        first);
  return fmt::format("the shards are not disjoint: {}; in all {} are read again", first, twice);
}

std::string unequal_lengths(const Epoch& e, const std::vector<Sequences>& all) {
  const auto by_size = [](const Sequences& a, const Sequences& b) { return a.size() < b.size(); };
  const auto [least, most] = std::minmax_element(all.begin(), all.end(), by_size);
  if (least->size() != most->size())
    return fmt::format(
        "the shards are not equally long: {} on rank {}, {} on rank {}; with one sequence per "
        "step, "
        "rank {} would wait forever for rank {} in step {}",
        most->size(), most - all.begin(), least->size(), least - all.begin(), most - all.begin(),
        least - all.begin(), least->size() + 1);
  if (least->size() != e.per_rank())
    return fmt::format(
        "every rank reads {} sequences of the epoch's {}; with {} ranks it should be {}",
        least->size(), e.order.size(), e.ranks(), e.per_rank());
  return "";
}

std::string wrong_rest(const Epoch& e, const std::vector<Sequences>& all) {
  for (size_t i = 0; i < e.per_rank() * e.ranks(); ++i)
    if (std::none_of(all.begin(), all.end(),
                     [&](const Sequences& share) { return holds(share, e.order[i]); }))
      return fmt::format(
          "no rank reads sequence {} at position {} of the order: left out are the last {} "
          "(order.size() % world_size) only, so that every epoch leaves out others",
          e.order[i], i, e.order.size() % e.ranks());
  return "";
}

void judge(const Epoch& e, const Parcel& result) {
  const std::vector<Sequences> all = shares(e, result);
  for (const auto& problem : {foreign_sequence, overlap, unequal_lengths, wrong_rest})
    if (const std::string message = problem(e, all); !message.empty())
      lab::grading::stop(message + described(e, all));
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
  Epoch e = epoch(11, 3, 7);
  for (int64_t& sequence : e.order) sequence = 5'000'000'000 + 3 * sequence;
  expect_partitions({e});
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
  expect_partitions(epochs);
}

}  // namespace
}  // namespace lab02::task2
