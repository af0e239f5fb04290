// Task 2: both groups of every rank.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "common/format.h"
#include "tests/labs/06_hybrid_2x3/grid.h"

namespace lab06::task2 {
namespace {

enum class Group { kPipeline, kReplicas };

const char* entry(Group group) { return group == Group::kPipeline ? "pipeline" : "replicas"; }

/// The members of a group of `rank`, as world ranks in the order of the group.
Numbers members(const Grid& g, size_t rank, Group group) {
  Numbers all;
  for (int i = 0; i < (group == Group::kPipeline ? g.pp : g.dp); ++i)
    all.push_back(static_cast<double>(group == Group::kPipeline ? g.rank(g.pipeline(rank), i)
                                                                : g.rank(i, g.stage(rank))));
  return all;
}

/// Which of its groups a rank has made first; 0 if that cannot be told.
int made_first(const Parcel& result) {
  const Numbers made = result.numbers("made");
  const auto place = [&](Group group) {
    double bits = 0;
    for (const double member : result.numbers(entry(group)))
      bits += std::ldexp(1.0, static_cast<int>(member));
    return std::ranges::find(made, bits) - made.begin();
  };
  const auto difference = place(Group::kPipeline) - place(Group::kReplicas);
  return difference < 0 ? 1 : difference > 0 ? -1 : 0;
}

/// If not all ranks make their groups in the same order.
std::string different_orders(const std::vector<Parcel>& ranks) {
  size_t pipeline_first = ranks.size();
  size_t replicas_first = ranks.size();
  for (size_t rank = ranks.size(); rank-- > 0;) {
    if (made_first(ranks[rank]) > 0) pipeline_first = rank;
    if (made_first(ranks[rank]) < 0) replicas_first = rank;
  }
  if (pipeline_first == ranks.size() || replicas_first == ranks.size()) return "";
  return fmt::format(
      "rank {} makes the group of its pipeline first, rank {} that of its replicas: split is a "
      "collective, all ranks make their groups in the same order",
      pipeline_first, replicas_first);
}

/// "it also holds rank 2 (stage 2 of pipeline 0)", "it lacks ...".
std::string wrong_members(const Grid& g, const Numbers& got, const Numbers& right) {
  const auto first_not_in = [](const Numbers& some, const Numbers& others) {
    return std::ranges::find_if(
        some, [&](double rank) { return std::ranges::find(others, rank) == others.end(); });
  };
  const auto extra = first_not_in(got, right);
  const auto missing = first_not_in(right, got);
  std::string text;
  if (extra != got.end()) text += fmt::format("also holds {}", g.name(static_cast<size_t>(*extra)));
  if (missing != right.end())
    text += fmt::format("{}lacks {}", text.empty() ? "" : ", and ",
                        g.name(static_cast<size_t>(*missing)));
  return text;
}

std::string guess(const Grid& g, size_t rank, Group group, const std::vector<Parcel>& ranks) {
  const bool row = group == Group::kPipeline;
  const Numbers got = ranks[rank].numbers(entry(group));
  const Numbers right = members(g, rank, group);
  const std::string color = row ? "the color of a pipeline's group is the number of the pipeline, "
                                  "and the key the stage"
                                : "the color of the replicas' group is the stage, and the key the "
                                  "number of the pipeline";
  if (got == Numbers(right.rbegin(), right.rend()))
    return "the right ranks in reverse order: the key of split decides the order";
  if (std::ranges::is_permutation(got, right))
    return "the right ranks in a wrong order: the key of split decides it";
  for (const Operation& operation : operations_of(ranks[rank].part("sent")))
    if (operation.kind == lab::OpKind::kSplit && operation.group != "world")
      return fmt::format("split off {}, and not off the world: only its ranks were asked",
                         operation.group);
  if (const std::string orders = different_orders(ranks); !orders.empty()) return orders;
  if (got == members(g, rank, row ? Group::kReplicas : Group::kPipeline))
    return (row ? "these are its replicas: " : "these are the stages of its pipeline: ") + color;
  if (got.size() == g.ranks())
    return "that is the whole world: ranks of different groups must pass different colors to split";
  if (got.size() == 1)
    return "it is alone: ranks of the same group must pass the same color to split";
  return wrong_members(g, got, right) + ": " + color;
}

void expect_groups(const Grid& g, const std::vector<Parcel>& ranks) {
  for (size_t rank = 0; rank < g.ranks(); ++rank) {
    for (const Group group : {Group::kPipeline, Group::kReplicas})
      if (const Numbers got = ranks[rank].numbers(entry(group)); got != members(g, rank, group))
        stop(fmt::format("{}: mesh.{}: {}\nit holds the ranks {}; it should hold {}, in this order",
                         g.name(rank), entry(group), guess(g, rank, group, ranks),
                         fmt::join(got, " "), fmt::join(members(g, rank, group), " ")));
    if (const Numbers place = ranks[rank].numbers("place");
        place != Numbers{double(g.pipeline(rank)), double(g.stage(rank))})
      stop(
          fmt::format("rank {}: mesh.place is stage {} of pipeline {}, it should be stage {} of "
                      "pipeline {}, as place_of says for world.rank()",
                      rank, place[1], place[0], g.stage(rank), g.pipeline(rank)));
  }
}

/// That a sum and a message over each group come from its members, in their order.
void expect_talk(const Grid& g, const std::vector<Parcel>& ranks) {
  for (size_t rank = 0; rank < g.ranks(); ++rank)
    for (const Group group : {Group::kPipeline, Group::kReplicas}) {
      const Numbers all = members(g, rank, group);
      double sum = 0;
      for (const double member : all) sum += std::ldexp(1.0, static_cast<int>(member));
      const auto own =
          static_cast<size_t>(std::ranges::find(all, static_cast<double>(rank)) - all.begin());
      const Numbers right{sum, all[(own + all.size() - 1) % all.size()]};
      const Numbers got = ranks[rank].numbers(std::string(entry(group)) + ".talk");
      if (got != right)
        stop(
            fmt::format("{}: mesh.{} has the right members, but an all_reduce and a message over "
                        "it bring {} instead of {}: is it a group that split has made?",
                        g.name(rank), entry(group), fmt::join(got, " "), fmt::join(right, " ")));
    }
}

/// Two splits of the world, and no other message.
void expect_splits(const Grid& g, const std::vector<Parcel>& ranks) {
  for (size_t rank = 0; rank < g.ranks(); ++rank) {
    const std::vector<Operation> sent = operations_of(ranks[rank].part("sent"));
    const auto is_split = [](const Operation& o) { return o.kind == lab::OpKind::kSplit; };
    for (const Operation& operation : sent)
      if (is_split(operation) && operation.group != "world")
        stop(fmt::format("{}: the groups are right, but make_mesh splits one off {}, not off world",
                         g.name(rank), operation.group));
    if (sent.size() != 2 || !std::ranges::all_of(sent, is_split))
      stop(
          fmt::format("{}: the groups are right, but make_mesh calls {}: two splits of the world "
                      "are all that is needed",
                      g.name(rank), in_words(sent)));
  }
}

void judge(const Grid& g, const std::vector<Parcel>& ranks) {
  const bool fits = g.ranks() == ranks.size();
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    const std::string what = fmt::format(
        "rank {}: a mesh of {} x {} {} a world of {}", rank, g.dp, lab::counted(g.pp, "stage"),
        fits ? "fits" : "does not fit", lab::counted(std::ssize(ranks), "rank"));
    if (!fits)
      expect_refusal(what + " (compare dp * pp with world.size()); make_mesh", ranks[rank], "");
    else if (const std::string& refusal = ranks[rank].text("refusal"); !refusal.empty())
      stop(fmt::format("{}, but make_mesh throws {}", what, refusal));
  }
  if (!fits) return;
  expect_groups(g, ranks);
  expect_talk(g, ranks);
  expect_splits(g, ranks);
}

/// One mesh after the other in the same world, those that do not fit between those that do.
void expect_meshes(const std::vector<Grid>& grids, size_t ranks, JobOptions options) {
  options.given = {"1"};
  std::vector<Call> calls;
  for (const Grid& g : grids) {
    Parcel input;
    g.set(input);
    calls.push_back({.scenario = "mesh",
                     .inputs = std::vector(ranks, input),
                     .name = fmt::format("{} on {}", g.in_words(), lab::counted(ranks, "rank"))});
  }
  judge_calls(calls, options,
              [&](size_t k, const std::vector<Parcel>& results) { judge(grids[k], results); });
}

TEST(Task2, SixRanks) {
  expect_meshes({{2, 3}, {3, 2}, {1, 6}, {6, 1}, {2, 3}}, 6, late_messages(21));
}
TEST(Task2, FourRanks) { expect_meshes({{2, 2}, {1, 4}, {4, 1}}, 4, late_messages(22)); }
TEST(Task2, EightRanks) { expect_meshes({{2, 4}, {4, 2}, {8, 1}}, 8, late_messages(23)); }
TEST(Task2, RefusesAWorldOfAnotherSize) {
  expect_meshes({{2, 2}, {2, 3}, {1, 3}, {3, 1}, {3, 3}, {2, 4}, {1, 1}, {3, 2}}, 6,
                late_messages(25));
  expect_meshes({{2, 3}, {2, 1}, {1, 2}, {2, 2}, {1, 3}, {3, 1}, {2, 0}, {0, 2}}, 4,
                late_messages(26));
  expect_meshes({{2, 2}, {1, 2}, {1, 3}}, 3, late_messages(27));
}

TEST(Task2, ASingleRank) { expect_meshes({{1, 1}, {1, 2}, {2, 1}, {1, 1}}, 1, late_messages(24)); }

TEST(Task2, OverGloo) { expect_meshes({{2, 3}, {2, 2}, {3, 2}}, 6, {}); }

}  // namespace
}  // namespace lab06::task2
