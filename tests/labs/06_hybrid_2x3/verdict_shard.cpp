// Verdict on task 3: the shares of all stages of all pipelines, judged together.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "common/data/sampler.h"
#include "tests/labs/06_hybrid_2x3/verdict_grid.h"

namespace lab06 {
namespace {

using lab::grading::Parcel;
using Sequences = std::vector<int64_t>;

struct Epoch {
  Grid grid;
  Sequences order;

  size_t per_pipeline() const { return order.size() / static_cast<size_t>(grid.dp); }
};

Epoch epoch(const Grid& grid, int64_t count, uint64_t seed, int64_t number = 0) {
  return {grid, lab::epoch_order(count, seed, number)};
}

bool holds(const Sequences& sequences, int64_t sequence) {
  return std::ranges::find(sequences, sequence) != sequences.end();
}

std::string sequences_in_words(const Sequences& sequences) {
  constexpr size_t kMost = 12;
  std::string text;
  for (size_t i = 0; i < std::min(sequences.size(), kMost); ++i)
    text += fmt::format(" {}", sequences[i]);
  return text.empty() ? " none" : text + (sequences.size() > kMost ? " ..." : "");
}

/// By rank.
std::vector<Sequences> shares(const Epoch& e) {
  Parcel input;
  e.grid.set(input);
  input.set("order", Numbers(e.order.begin(), e.order.end()));
  const Parcel result = lab::grading::student("shards", input);
  std::vector<Sequences> all;
  for (size_t r = 0; r < e.grid.ranks(); ++r) {
    const std::string place = fmt::format(".{}.{}", e.grid.pipeline(r), e.grid.stage(r));
    const Numbers share = result.numbers("share" + place);
    if (share != result.numbers("again" + place))
      lab::grading::stop(fmt::format(
          "{}: called twice with the same arguments, shard returns two different shares: it must "
          "depend on nothing but order, place and dp",
          e.grid.name(r)));
    all.emplace_back(share.begin(), share.end());
  }
  return all;
}

std::string foreign_sequence(const Epoch& e, const std::vector<Sequences>& all) {
  for (size_t r = 0; r < all.size(); ++r)
    for (int64_t sequence : all[r])
      if (!holds(e.order, sequence))
        return fmt::format(
            "{} reads sequence {}, which the epoch does not have: shard returns the sequences that "
            "stand at its positions of order, not the positions",
            e.grid.name(r), sequence);
  return "";
}

std::string different_stages(const Epoch& e, const std::vector<Sequences>& all) {
  for (size_t r = 0; r < all.size(); ++r) {
    const size_t first = e.grid.rank(e.grid.pipeline(r), 0);
    if (all[r] == all[first]) continue;
    const bool by_stage = e.grid.dp > 1 && e.grid.stage(r) < e.grid.dp &&
                          all[r] == all[e.grid.rank(e.grid.stage(r), e.grid.stage(r))];
    return fmt::format(
        "the stages of pipeline {} read different sequences{}: the first stage needs the tokens, "
        "and the last one their targets; all stages of a pipeline have the same share",
        e.grid.pipeline(r), by_stage ? ", a share for each stage" : "");
  }
  return "";
}

std::string overlap(const Epoch& e, const std::vector<Sequences>& all) {
  std::map<int64_t, int> reader;
  for (int d = 0; d < e.grid.dp; ++d)
    for (int64_t sequence : all[e.grid.rank(d, 0)]) {
      const auto [before, is_new] = reader.emplace(sequence, d);
      if (is_new) continue;
      if (before->second == d)
        return fmt::format("pipeline {} reads sequence {} twice", d, sequence);
      if (all[e.grid.rank(d, 0)] == all[e.grid.rank(before->second, 0)])
        return "every pipeline reads the same sequences: they would all compute the same gradient, "
               "and their sum is worth no more than one of them; the pipelines share the epoch out";
      return fmt::format(
          "the shares of the pipelines are not disjoint: sequence {} is read by pipeline {} and by "
          "pipeline {}",
          sequence, before->second, d);
    }
  return "";
}

std::string unequal_lengths(const Epoch& e, const std::vector<Sequences>& all) {
  const size_t first = all[0].size();
  for (int d = 1; d < e.grid.dp; ++d)
    if (const size_t own = all[e.grid.rank(d, 0)].size(); own != first)
      return fmt::format(
          "the shares are not equally long: pipeline 0 has {} sequences, pipeline {} has {}; the "
          "one with more would wait in the all_reduce of its last step for ever",
          first, d, own);
  if (first == e.per_pipeline()) return "";
  if (first == e.order.size() / e.grid.ranks())
    return fmt::format(
        "every pipeline reads {} sequences of the epoch's {}, as if each rank had a share of its "
        "own: {} pipelines share them out, that makes {} for each",
        first, e.order.size(), e.grid.dp, e.per_pipeline());
  return fmt::format(
      "every pipeline reads {} sequences of the epoch's {}; with {} pipelines it should be {}",
      first, e.order.size(), e.grid.dp, e.per_pipeline());
}

std::string wrong_rest(const Epoch& e, const std::vector<Sequences>& all) {
  for (size_t i = 0; i < e.per_pipeline() * static_cast<size_t>(e.grid.dp); ++i)
    if (std::ranges::none_of(all, [&](const Sequences& own) { return holds(own, e.order[i]); }))
      return fmt::format(
          "no pipeline reads sequence {} at position {} of the order: left out are the last {} "
          "(order.size() % dp) only, so that every epoch leaves out others",
          e.order[i], i, e.order.size() % static_cast<size_t>(e.grid.dp));
  return "";
}

std::string described(const Epoch& e, const std::vector<Sequences>& all) {
  std::string text = "\norder:" + sequences_in_words(e.order);
  for (size_t r = 0; r < all.size(); ++r)
    text += fmt::format("\n{}:{}", e.grid.name(r), sequences_in_words(all[r]));
  return text;
}

std::vector<Sequences> expect_partition(const Epoch& e) {
  std::vector<Sequences> all = shares(e);
  for (const auto& problem :
       {foreign_sequence, different_stages, overlap, unequal_lengths, wrong_rest})
    if (const std::string message = problem(e, all); !message.empty())
      lab::grading::stop(message + described(e, all));
  return all;
}

TEST(Task3, TwoPipelinesOfThreeStages) { expect_partition(epoch({2, 3}, 12, 31)); }
TEST(Task3, TheRestIsLeftOut) {
  expect_partition(epoch({2, 3}, 13, 32));
  expect_partition(epoch({4, 2}, 103, 33));
}
TEST(Task3, AnyNumberOfPipelines) {
  for (const int dp : {3, 5, 6}) expect_partition(epoch({dp, 2}, 30, 34));
}
TEST(Task3, OnePipelineReadsAll) { expect_partition(epoch({1, 4}, 9, 35)); }
TEST(Task3, PipelinesOfOneStage) { expect_partition(epoch({3, 1}, 10, 36)); }
TEST(Task3, FewerSequencesThanPipelines) { expect_partition(epoch({3, 2}, 2, 37)); }

TEST(Task3, SequencesNotPositions) {
  Epoch e = epoch({3, 2}, 11, 38);
  for (int64_t& sequence : e.order) sequence = 1000 + 3 * sequence;
  expect_partition(e);
}

TEST(Task3, EveryEpochIsShuffledAnew) {
  const Epoch first = epoch({2, 2}, 15, 39, 0);
  const Epoch second = epoch({2, 2}, 15, 39, 1);
  const std::vector<Sequences> before = expect_partition(first);
  if (expect_partition(second) == before)
    lab::grading::stop(
        "the shares are the same in every epoch: order is shuffled anew each time, take the "
        "sequences as they stand there" +
        described(second, before));
}

}  // namespace
}  // namespace lab06
