// The mesh of a command line: what is filled in, what is refused, what a resumed run takes over.
#include "common/run/options/mesh_options.h"

#include <gtest/gtest.h>

#include <CLI/CLI.hpp>
#include <string>
#include <tuple>
#include <vector>

#include "common/run/options/main_guard.h"
#include "tests/unit/error_of.h"

namespace lab {
namespace {

struct Case {
  MeshOptions mesh;
  LaunchOptions launch;
  TrainOptions train;
};

using Shape = std::tuple<int, int, int>;  // dp, pp, microbatches

Shape settled(Case c) {
  settle_mesh(c.mesh, c.launch, c.train);
  EXPECT_EQ(c.train.ranks, c.mesh.dp);
  EXPECT_EQ(c.train.accumulate, c.mesh.microbatches * c.mesh.waves);
  EXPECT_EQ(c.launch.ranks == 0 ? 1 : c.launch.ranks, c.mesh.ranks());
  return {c.mesh.dp, c.mesh.pp, c.mesh.microbatches};
}

std::string refusal(Case c) {
  return error_of([&] { settle_mesh(c.mesh, c.launch, c.train); });
}

Case with_ranks(int ranks) {
  Case c;
  c.launch.ranks = ranks;
  return c;
}

/// A run of two pipelines with three microbatches each, as its checkpoint tells of it.
Case resumed() {
  Case c;
  c.train.resume = true;
  c.train.ranks = 2;
  c.train.accumulate = 3;
  c.mesh = {.dp = 2, .pp = 3};
  return c;
}

TEST(MeshOptions, TwoPipelinesOfThreeStagesAreTheDefault) {
  EXPECT_EQ(settled({}), Shape(2, 3, 3));
  EXPECT_EQ(settled({.mesh = {.dp = 3}, .launch = {}, .train = {}}), Shape(3, 3, 2));
  EXPECT_EQ(settled({.mesh = {.pp = 2}, .launch = {}, .train = {}}), Shape(2, 2, 3));
  EXPECT_EQ(settled({.mesh = {.dp = 1, .pp = 1}, .launch = {}, .train = {}}), Shape(1, 1, 6));
}

TEST(MeshOptions, RanksAreMadeIntoStagesFirst) {
  EXPECT_EQ(settled(with_ranks(1)), Shape(1, 1, 6));
  EXPECT_EQ(settled(with_ranks(2)), Shape(1, 2, 6));
  EXPECT_EQ(settled(with_ranks(3)), Shape(1, 3, 6));
  EXPECT_EQ(settled(with_ranks(4)), Shape(2, 2, 3));
  EXPECT_EQ(settled(with_ranks(6)), Shape(2, 3, 3));
  Case c = with_ranks(6);
  c.mesh.dp = 3;
  EXPECT_EQ(settled(c), Shape(3, 2, 2));
}

TEST(MeshOptions, SixMicrobatchesAStepUnlessSaid) {
  EXPECT_EQ(settled({.mesh = {.dp = 4}, .launch = {}, .train = {}}), Shape(4, 3, 1));
  EXPECT_EQ(settled({.mesh = {.dp = 8}, .launch = {}, .train = {}}), Shape(8, 3, 1));
  EXPECT_EQ(settled({.mesh = {.dp = 1, .waves = 2}, .launch = {}, .train = {}}), Shape(1, 3, 3));
  EXPECT_EQ(settled({.mesh = {.microbatches = 12}, .launch = {}, .train = {}}), Shape(2, 3, 12));
}

TEST(MeshOptions, RefusesAWorldOfAnotherSize) {
  Case c = with_ranks(4);
  c.mesh = {.dp = 2, .pp = 3};
  EXPECT_EQ(refusal(c),
            "--dp 2 --pp 3: 2 pipelines of 3 stages are 6 ranks, but there are 4; change one");
  c = with_ranks(4);
  c.mesh.pp = 3;
  EXPECT_TRUE(contains(refusal(c), "3 ranks, but there are 4")) << refusal(c);
  EXPECT_TRUE(contains(refusal({.mesh = {.dp = 40}, .launch = {}, .train = {}}), "120 ranks"));
}

TEST(MeshOptions, AccumulateIsNotSaidHere) {
  Case c;
  c.train.accumulate = 5;
  EXPECT_TRUE(contains(refusal(c), "--microbatches times --waves")) << refusal(c);
}

TEST(MeshOptions, AResumedRunKeepsItsMicrobatchesAStep) {
  EXPECT_EQ(settled(resumed()), Shape(2, 3, 3));
  Case c = resumed();
  c.launch.ranks = 1;
  EXPECT_EQ(settled(c), Shape(1, 1, 6));
  c = resumed();
  c.mesh = {.dp = 1, .pp = 2};
  EXPECT_EQ(settled(c), Shape(1, 2, 6));
  c.mesh = {.dp = 4, .pp = 1};
  EXPECT_TRUE(contains(refusal(c), "takes 6 microbatches a step")) << refusal(c);
  c.mesh = {.dp = 2, .pp = 3, .microbatches = 6};
  EXPECT_TRUE(contains(refusal(c), "make 12")) << refusal(c);
}

TEST(MeshOptions, AFileOfOptionsTellsTheWholeMesh) {
  Case c;
  c.train.config_file = "steps=350\ndp=2\n";
  settle_mesh(c.mesh, c.launch, c.train);
  EXPECT_EQ(c.train.config_file, "steps=350\ndp=2\npp=3\nmicrobatches=3\n");
}

}  // namespace
}  // namespace lab
