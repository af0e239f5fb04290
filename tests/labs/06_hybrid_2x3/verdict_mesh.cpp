// Verdict on task 2: both groups of every rank.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/labs/06_hybrid_2x3/verdict_grid.h"

namespace lab06 {
namespace {

using lab::grading::Functions;
using lab::grading::GroupOptions;
using lab::grading::Parcel;

/// The members of the group that holds `rank`, as world ranks in the order of the group.
Numbers members(const Grid& g, size_t rank, bool pipeline) {
  Numbers all;
  for (int i = 0; i < (pipeline ? g.pp : g.dp); ++i)
    all.push_back(
        static_cast<double>(pipeline ? g.rank(g.pipeline(rank), i) : g.rank(i, g.stage(rank))));
  return all;
}

std::string guess(const Grid& g, size_t rank, bool pipeline, const Numbers& got) {
  const Numbers right = members(g, rank, pipeline);
  if (got == members(g, rank, !pipeline))
    return pipeline
               ? "these are its replicas: the color of a pipeline's group is the number of the "
                 "pipeline, and the key the stage"
               : "these are the stages of its pipeline: the color of the replicas' group is the "
                 "stage, and the key the number of the pipeline";
  if (got == Numbers(right.rbegin(), right.rend()))
    return "the right ranks in reverse order: the key of split decides about the order";
  if (std::is_permutation(got.begin(), got.end(), right.begin(), right.end()))
    return "the right ranks in a wrong order: the key of split decides about it";
  if (got.size() == g.ranks())
    return "that is the whole world: ranks of different groups give split different colors";
  if (got.size() == 1) return "it is alone: ranks of the same group give split the same color";
  const auto same = [&](auto place) {
    return std::ranges::all_of(got, [&](double r) {
      return place(static_cast<size_t>(r)) == place(static_cast<size_t>(got[0]));
    });
  };
  if (!same([&](size_t r) { return g.pipeline(r); }) && !same([&](size_t r) { return g.stage(r); }))
    return "these are neither the stages of one pipeline nor replicas of one stage: split is a "
           "collective, all ranks make their groups in the same order";
  return "the color of split decides who is in a group";
}

void expect_members(const Grid& g, size_t rank, bool pipeline, const Numbers& got) {
  const Numbers right = members(g, rank, pipeline);
  if (got == right) return;
  const std::string what = pipeline ? "mesh.pipeline" : "mesh.replicas";
  lab::grading::stop(
      fmt::format("{}: {} {}\nit holds the ranks {}; it should hold {}, in this order",
                  g.name(rank), what, guess(g, rank, pipeline, got), list(got), list(right)));
}

std::vector<Parcel> run(const std::string& scenario, const Grid& g, size_t ranks, bool talk,
                        const GroupOptions& options) {
  Parcel input;
  g.set(input);
  if (talk) input.set("talk", 1);
  return lab::grading::student_group(scenario, std::vector(ranks, input), options);
}

void expect_groups(const Grid& g, const std::vector<Parcel>& results) {
  for (size_t rank = 0; rank < g.ranks(); ++rank) {
    const Numbers place = results[rank].numbers("place");
    const Numbers right{static_cast<double>(g.pipeline(rank)), static_cast<double>(g.stage(rank))};
    for (const bool pipeline : {true, false})
      expect_members(g, rank, pipeline, results[rank].numbers(pipeline ? "pipeline" : "replicas"));
    if (place != right)
      lab::grading::stop(
          fmt::format("rank {}: mesh.place is stage {} of pipeline {}, it should be stage {} of "
                      "pipeline {}: what place_of says about world.rank()",
                      rank, place[1], place[0], right[1], right[0]));
  }
}

/// That a sum and a message over each group come from its members, in their order.
void expect_talk(const Grid& g, const std::vector<Parcel>& results) {
  for (size_t rank = 0; rank < g.ranks(); ++rank)
    for (const bool pipeline : {true, false}) {
      const Numbers all = members(g, rank, pipeline);
      double sum = 0;
      for (double member : all) sum += std::ldexp(1.0, static_cast<int>(member));
      const auto own = std::ranges::find(all, static_cast<double>(rank)) - all.begin();
      const double before = all[(static_cast<size_t>(own) + all.size() - 1) % all.size()];
      const std::string name = pipeline ? "pipeline" : "replicas";
      const Numbers got = results[rank].numbers(name + ".talk");
      if (got != Numbers{sum, before})
        lab::grading::stop(fmt::format(
            "{}: mesh.{} has the right members, but an all_reduce and a message over it bring {} "
            "instead of {}: is it a group that split has made?",
            g.name(rank), name, list(got), list({sum, before})));
    }
}

void expect_mesh(const Grid& g, uint64_t seed) {
  expect_groups(g, run("mesh", g, g.ranks(), false, late(seed, Functions::kGiven)));
  const std::vector<Parcel> results =
      run("mesh", g, g.ranks(), true, late(seed, Functions::kGiven));
  expect_talk(g, results);
}

TEST(Task2, TwoPipelinesOfThreeStages) { expect_mesh({2, 3}, 21); }
TEST(Task2, ThreePipelinesOfTwoStages) { expect_mesh({3, 2}, 22); }
TEST(Task2, FourPipelinesOfThreeStages) { expect_mesh({4, 3}, 23); }
TEST(Task2, OnePipeline) { expect_mesh({1, 4}, 24); }
TEST(Task2, PipelinesOfOneStage) { expect_mesh({4, 1}, 25); }
TEST(Task2, ASingleRank) { expect_mesh({1, 1}, 26); }

TEST(Task2, OverGloo) {
  const Grid g{2, 3};
  const std::vector<Parcel> results = run("mesh", g, g.ranks(), true, over_gloo(Functions::kGiven));
  expect_groups(g, results);
  expect_talk(g, results);
}

void expect_refusal(const Grid& g, size_t ranks) {
  const std::vector<Parcel> results =
      run("mesh_refusal", g, ranks, false, late(27, Functions::kGiven));
  for (size_t rank = 0; rank < ranks; ++rank) {
    const std::string case_text =
        fmt::format("rank {}: {} pipelines of {} stages do not fit a world of {} ranks; make_mesh",
                    rank, g.dp, g.pp, ranks);
    if (const auto sent = operations(results[rank], "operations"); !sent.empty())
      lab::grading::stop(fmt::format(
          "{} must throw lab::Error before any message, and has called {}: compare dp * pp with "
          "world.size() first",
          case_text, lab::op_name(sent[0].kind)));
    if (results[rank].text("error").empty())
      lab::grading::stop(case_text + " must throw lab::Error (lab::require), and returned");
  }
}

TEST(Task2, RefusesAWorldOfAnotherSize) {
  expect_refusal({2, 3}, 4);
  expect_refusal({2, 2}, 6);
  expect_refusal({2, 2}, 3);
  expect_refusal({1, 3}, 6);
  expect_refusal({3, 1}, 6);
}

}  // namespace
}  // namespace lab06
