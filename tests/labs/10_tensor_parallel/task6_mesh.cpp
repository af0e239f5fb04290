// Task 6: the groups of three dimensions.
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>

#include "tests/grading/refusal.h"
#include "tests/labs/10_tensor_parallel/slices.h"

namespace lab10::task6 {
namespace {

using lab::grading::Call;
using lab::grading::JobOptions;
using lab::grading::late_messages;

struct Grid {
  size_t dp = 1;
  size_t pp = 1;
  size_t tp = 1;

  size_t ranks() const { return dp * pp * tp; }
  size_t rank(size_t pipeline, size_t stage, size_t slice) const {
    return (pipeline * pp + stage) * tp + slice;
  }
  size_t pipeline(size_t r) const { return r / (pp * tp); }
  size_t stage(size_t r) const { return r / tp % pp; }
  size_t slice(size_t r) const { return r % tp; }
  std::string name(size_t r) const {
    return fmt::format("rank {} (pipeline {}, stage {}, slice {})", r, pipeline(r), stage(r),
                       slice(r));
  }
  std::string in_words() const { return fmt::format("{} x {} x {}", dp, pp, tp); }
};

enum Group : size_t { kSlices, kPipeline, kReplicas, kModel };
constexpr std::array<const char*, 4> kNames{"slices", "pipeline", "replicas", "model"};
constexpr std::array<const char*, 4> kWho{
    "the ranks that differ in the slice alone", "the ranks that differ in the stage alone",
    "the ranks that differ in the pipeline alone", "all ranks of the same pipeline"};

Numbers members(const Grid& g, size_t r, size_t group) {
  Numbers all;
  for (size_t other = 0; other < g.ranks(); ++other) {
    const bool same_pipeline = g.pipeline(other) == g.pipeline(r);
    const bool same_stage = g.stage(other) == g.stage(r);
    const bool same_slice = g.slice(other) == g.slice(r);
    const std::array<bool, 4> belongs{same_pipeline && same_stage, same_pipeline && same_slice,
                                      same_stage && same_slice, same_pipeline};
    if (belongs.at(group)) all.push_back(static_cast<double>(other));
  }
  return all;
}

std::string guess(const Grid& g, size_t r, size_t group, const Numbers& got) {
  const Numbers right = members(g, r, group);
  if (std::ranges::is_permutation(got, right))
    return "the right ranks in a wrong order: the key of split decides it";
  for (size_t other = 0; other < kNames.size(); ++other)
    if (other != group && got == members(g, r, other))
      return fmt::format("these are the ranks of mesh.{}", kNames.at(other));
  if (got.size() == g.ranks())
    return "that is the whole world: ranks of different groups must pass different colors";
  if (got.size() == 1) return "it is alone: ranks of a group pass the same color to split";
  const std::array<decltype(&Grid::slice), 3> places{&Grid::slice, &Grid::stage, &Grid::pipeline};
  Numbers alike;  // in what the ranks of the group differ in
  for (size_t other = 0; group != kModel && other < g.ranks(); ++other)
    if ((g.*places.at(group))(other) == (g.*places.at(group))(r))
      alike.push_back(static_cast<double>(other));
  if (got == alike)
    return "the color is made from what its ranks differ in: make it from what they share";
  if (got.size() > right.size())
    return "too many: the color must be made from all that the ranks of this group share";
  return "the color groups the ranks by another coordinate";
}

void judge_mesh(const Grid& g, const std::vector<Parcel>& ranks) {
  for (size_t r = 0; r < ranks.size(); ++r) {
    const std::string& refusal = ranks[r].text("refusal");
    const bool fits = g.ranks() == ranks.size();
    if (!fits) {
      if (!operations_of(ranks[r].part("sent")).empty())
        stop(fmt::format(
            "make_mesh({}) in a world of {} must throw lab::Error before any message\nit "
            "called: {}",
            g.in_words(), ranks.size(), in_words(operations_of(ranks[r].part("sent")))));
      if (!lab::grading::is_refusal(refusal))
        stop(fmt::format(
            "make_mesh({}) in a world of {} must throw lab::Error (lab::require), but it {}",
            g.in_words(), ranks.size(), lab::grading::in_words(refusal)));
      continue;
    }
    if (!refusal.empty())
      stop(fmt::format("make_mesh({}) in a world of {} throws {}", g.in_words(), ranks.size(),
                       refusal));
    const Numbers place = ranks[r].numbers("place");
    const Numbers right{static_cast<double>(g.pipeline(r)), static_cast<double>(g.stage(r)),
                        static_cast<double>(g.slice(r))};
    if (place != right)
      stop(fmt::format(
          "make_mesh: wrong places: slices are adjacent ranks, then come stages, then pipelines\n"
          "rank {} of {} is pipeline {}, stage {}, slice {}; it should be {}, {}, {}",
          r, g.in_words(), place[0], place[1], place[2], right[0], right[1], right[2]));
  }
  if (g.ranks() != ranks.size()) return;
  for (size_t r = 0; r < ranks.size(); ++r) {
    for (size_t group = 0; group < kNames.size(); ++group)
      if (const Numbers got = ranks[r].numbers(kNames.at(group)); got != members(g, r, group))
        stop(
            fmt::format("make_mesh: mesh.{} of {}: {}\nit holds the ranks {}; it should hold {}, "
                        "{}",
                        kNames.at(group), g.name(r), guess(g, r, group, got), fmt::join(got, " "),
                        fmt::join(members(g, r, group), " "), kWho.at(group)));
  }
  for (size_t r = 0; r < ranks.size(); ++r)
    for (size_t group = 0; group < kNames.size(); ++group) {
      double sum = 0;
      for (const double member : members(g, r, group)) sum += std::exp2(member);
      if (ranks[r].number(std::string(kNames.at(group)) + ".sum") != sum)
        stop(
            fmt::format("make_mesh: a sum over mesh.{} of {} comes from other ranks than its "
                        "members",
                        kNames.at(group), g.name(r)));
    }
}

void expect_meshes(size_t n, const std::vector<Grid>& grids, const JobOptions& options) {
  std::vector<Call> calls;
  for (const Grid& g : grids) {
    Call call{.scenario = "mesh",
              .inputs = std::vector<Parcel>(n),
              .name = fmt::format("{} in a world of {}", g.in_words(), n)};
    for (size_t r = 0; r < n; ++r) {
      call.inputs[r].set("dp", static_cast<double>(g.dp));
      call.inputs[r].set("pp", static_cast<double>(g.pp));
      call.inputs[r].set("tp", static_cast<double>(g.tp));
      for (size_t group = 0; g.ranks() > 0 && group < kNames.size(); ++group)
        call.inputs[r].set(fmt::format("right.{}", kNames.at(group)), members(g, r, group));
    }
    calls.push_back(call);
  }
  judge_calls(calls, options,
              [&](size_t k, const std::vector<Parcel>& ranks) { judge_mesh(grids[k], ranks); });
}

TEST(Task6, MeshesOfTwelve) {
  expect_meshes(12, {{2, 3, 2}, {3, 2, 2}, {2, 2, 3}, {1, 4, 3}, {2, 3, 3}, {1, 2, 2}},
                late_messages(61));
}
TEST(Task6, MeshesOfSix) {
  expect_meshes(6, {{1, 1, 6}, {2, 3, 1}, {1, 3, 2}, {3, 1, 2}, {2, 1, 2}, {1, 1, 3}, {2, 3, 1}},
                late_messages(62));
}
TEST(Task6, MeshesOfTwentyFour) {
  expect_meshes(24, {{2, 6, 2}, {6, 2, 2}, {2, 2, 6}, {12, 1, 2}}, late_messages(71));
}
TEST(Task6, NineSlices) { expect_meshes(18, {{1, 2, 9}, {2, 1, 9}}, late_messages(72)); }
TEST(Task6, ASingleRank) { expect_meshes(1, {{1, 1, 1}, {1, 1, 2}}, late_messages(63)); }
TEST(Task6, MeshesOfEight) { expect_meshes(8, {{2, 2, 2}, {1, 2, 4}}, late_messages(68)); }
TEST(Task6, MeshesThatLeaveARankOver) {
  expect_meshes(7, {{3, 2, 1}, {2, 1, 3}, {1, 7, 1}, {1, 3, 2}}, late_messages(70));
}
TEST(Task6, MeshesOfNothing) {
  expect_meshes(2, {{2, 1, 1}, {2, 0, 1}, {2, 1, 0}, {0, 1, 2}}, late_messages(69));
}
TEST(Task6, MeshesOfFourOverGloo) { expect_meshes(4, {{2, 1, 2}, {1, 2, 2}, {2, 2, 1}}, {}); }

}  // namespace
}  // namespace lab10::task6
