// Task 3: the shards of all stages of all pipelines, judged together.
#include <gtest/gtest.h>

#include <algorithm>

#include "common/data/sampler.h"
#include "common/format.h"
#include "tests/grading/shares.h"
#include "tests/labs/06_hybrid_2x3/grid.h"

namespace lab06::task3 {
namespace {

using lab::grading::Sequences;

struct Epoch {
  Grid grid;
  Sequences order;
};

/// An epoch of `count` sequences, as the program's Sampler would make it.
Epoch epoch(const Grid& grid, int64_t count, uint64_t seed, int64_t number = 0) {
  return {grid, lab::epoch_order(count, 1000 * lab::grading::scenario_seed() + seed, number)};
}

std::string different_stages(const Grid& g, const std::vector<Sequences>& all) {
  for (size_t r = 0; r < all.size(); ++r) {
    if (all[r] == all[g.rank(g.pipeline(r), 0)]) continue;
    const bool by_stage =
        g.dp > 1 && g.stage(r) < g.dp && all[r] == all[g.rank(g.stage(r), g.stage(r))];
    return fmt::format(
        "the stages of pipeline {} read different sequences{}: the first stage needs the tokens, "
        "and the last one their targets; all stages of a pipeline have the same shard",
        g.pipeline(r), by_stage ? ", a shard for each stage" : "");
  }
  return "";
}

void judge(const Epoch& e, const std::vector<Parcel>& ranks) {
  std::vector<Sequences> all;
  for (size_t r = 0; r < ranks.size(); ++r) {
    const Numbers share = ranks[r].numbers("share");
    all.emplace_back(share.begin(), share.end());
    if (share != ranks[r].numbers("again"))
      stop(fmt::format(
          "{}: called twice with the same arguments, shard returns two different shards: it must "
          "depend on nothing but order, place and dp",
          e.grid.name(r)));
  }
  std::vector<Sequences> of_pipelines;
  for (int d = 0; d < e.grid.dp; ++d) of_pipelines.push_back(all[e.grid.rank(d, 0)]);
  std::string wrong = different_stages(e.grid, all);
  if (wrong.empty()) wrong = lab::grading::unfair_shares(e.order, of_pipelines, "pipeline");
  if (wrong.empty()) return;
  const size_t each = e.order.size() / e.grid.ranks();
  if (e.grid.pp > 1 && each > 0 &&
      std::ranges::all_of(all, [&](const Sequences& own) { return own.size() == each; }))
    wrong = fmt::format(
        "every pipeline reads {}, as if each rank had its own shard: "
        "{} pipelines divide the epoch\n{}",
        lab::counted(static_cast<int64_t>(each), "sequence"), e.grid.dp, wrong);
  std::string text = "\norder:" + lab::grading::in_words(e.order);
  for (size_t r = 0; r < all.size(); ++r)
    text += fmt::format("\n{}:{}", e.grid.name(r), lab::grading::in_words(all[r]));
  stop(wrong + text);
}

/// One epoch after the other in the same processes, of equally many ranks. Every rank asks for its
/// own shard.
void expect_partitions(const std::vector<Epoch>& epochs) {
  std::vector<Call> calls;
  for (const Epoch& e : epochs) {
    Parcel input;
    e.grid.set(input);
    input.set("order", Numbers(e.order.begin(), e.order.end()));
    calls.push_back({.scenario = "shard",
                     .inputs = std::vector(e.grid.ranks(), input),
                     .name = fmt::format(
                         "{}, {}", lab::counted(static_cast<int64_t>(e.order.size()), "sequence"),
                         e.grid.in_words())});
  }
  judge_calls(calls, late_messages(31),
              [&](size_t k, const std::vector<Parcel>& ranks) { judge(epochs[k], ranks); });
}

TEST(Task3, TwoPipelinesOfThreeStages) { expect_partitions({epoch({2, 3}, 12, 31)}); }

TEST(Task3, SequencesNotPositions) {
  Epoch e = epoch({3, 2}, 11, 35);
  for (int64_t& sequence : e.order) sequence = 5'000'000'000 + 3 * sequence;
  expect_partitions({e});
}

TEST(Task3, TheRestIsLeftOut) {
  expect_partitions({epoch({2, 3}, 13, 32), epoch({3, 2}, 14, 33), epoch({6, 1}, 103, 34)});
}

TEST(Task3, EveryEpochIsShuffledAnew) {
  std::vector<Epoch> epochs;
  for (int64_t number = 0; number < 4; ++number) epochs.push_back(epoch({2, 2}, 15, 36, number));
  expect_partitions(epochs);
}

void expect_any_sizes(const std::vector<Grid>& grids) {
  std::vector<Epoch> epochs;
  for (const Grid& g : grids)
    for (const int64_t count : {0, g.dp - 1, g.dp, 4 * g.dp, 7 * g.dp + g.dp / 2, 25 + g.dp})
      epochs.push_back(epoch(g, count, 37));
  expect_partitions(epochs);
}

TEST(Task3, AnySizes) {
  expect_any_sizes({{2, 3}, {3, 2}, {1, 6}, {6, 1}});
  expect_any_sizes({{4, 2}, {2, 4}, {8, 1}});
  expect_any_sizes({{1, 1}});
}

}  // namespace
}  // namespace lab06::task3
