// The ranks of a command line: what is filled in, what is refused, what a resumed run takes over.
#include "common/run/options/settle_ranks.h"

#include <gtest/gtest.h>

#include <string>
#include <tuple>
#include <vector>

#include "common/run/checkpoint/checkpoint_folder.h"
#include "common/run/checkpoint/training_state.h"
#include "common/run/training/settle_plan.h"
#include "tests/unit/error_of.h"
#include "tests/unit/temp_folder.h"

namespace lab::settle_ranks_test {
namespace {

RunPlan plan_of(Division division, const std::vector<std::string>& arguments) {
  std::vector<const char*> words{"train"};
  for (const std::string& argument : arguments) words.push_back(argument.c_str());
  return settle_plan(static_cast<int>(words.size()), words.data(),
                     {.about = "test", .division = division});
}

RunPlan mesh(const std::vector<std::string>& arguments) {
  return plan_of(Division::kMesh, arguments);
}

using Shape = std::tuple<int, int, int>;  // dp, pp, microbatches

Shape shape(const RunPlan& plan) {
  EXPECT_EQ(plan.accumulate, plan.microbatches * plan.waves);
  EXPECT_EQ(plan.launch.ranks, plan.ranks());
  return {plan.dp, plan.pp, plan.microbatches};
}

std::string refusal(Division division, const std::vector<std::string>& arguments) {
  return error_of([&] { plan_of(division, arguments); });
}

TEST(SettleRanks, TwoPipelinesOfThreeStagesAreTheDefault) {
  EXPECT_EQ(shape(mesh({})), Shape(2, 3, 3));
  EXPECT_EQ(shape(mesh({"--dp", "3"})), Shape(3, 3, 2));
  EXPECT_EQ(shape(mesh({"--pp", "2"})), Shape(2, 2, 3));
  EXPECT_EQ(shape(mesh({"--dp", "1", "--pp", "1"})), Shape(1, 1, 6));
}

TEST(SettleRanks, RanksAreMadeIntoStagesFirst) {
  EXPECT_EQ(shape(mesh({"--ranks", "1"})), Shape(1, 1, 6));
  EXPECT_EQ(shape(mesh({"--ranks", "2"})), Shape(1, 2, 6));
  EXPECT_EQ(shape(mesh({"--ranks", "3"})), Shape(1, 3, 6));
  EXPECT_EQ(shape(mesh({"--ranks", "4"})), Shape(2, 2, 3));
  EXPECT_EQ(shape(mesh({"--ranks", "6"})), Shape(2, 3, 3));
  EXPECT_EQ(shape(mesh({"--ranks", "6", "--dp", "3"})), Shape(3, 2, 2));
}

TEST(SettleRanks, SixMicrobatchesAStepUnlessSaid) {
  EXPECT_EQ(shape(mesh({"--dp", "4"})), Shape(4, 3, 1));
  EXPECT_EQ(shape(mesh({"--dp", "8"})), Shape(8, 3, 1));
  EXPECT_EQ(shape(mesh({"--dp", "1", "--waves", "2"})), Shape(1, 3, 3));
  EXPECT_EQ(shape(mesh({"--microbatches", "12"})), Shape(2, 3, 12));
}

TEST(SettleRanks, RefusesAWorldOfAnotherSize) {
  EXPECT_EQ(refusal(Division::kMesh, {"--ranks", "4", "--dp", "2", "--pp", "3"}),
            "--dp 2 --pp 3: 2 pipelines of 3 stages are 6 ranks, but the number of ranks is 4; "
            "change one");
  std::string error = refusal(Division::kMesh, {"--ranks", "4", "--pp", "3"});
  EXPECT_TRUE(contains(error, "3 ranks, but the number of ranks is 4")) << error;
  error = refusal(Division::kMesh, {"--dp", "40"});
  EXPECT_TRUE(contains(error, "120 ranks")) << error;
}

TEST(SettleRanks, PartsOfLayers) {
  const auto shape_of = [](const std::vector<std::string>& arguments) {
    const RunPlan plan = plan_of(Division::kSlices, arguments);
    return std::tuple(plan.dp, plan.pp, plan.tp, plan.microbatches);
  };
  EXPECT_EQ(shape_of({}), std::tuple(1, 1, 3, 1));
  EXPECT_EQ(shape_of({"--ranks", "6"}), std::tuple(1, 1, 6, 1));
  EXPECT_EQ(shape_of({"--ranks", "6", "--pp", "3"}), std::tuple(1, 3, 2, 6));
  EXPECT_EQ(shape_of({"--dp", "2", "--tp", "2"}), std::tuple(2, 1, 2, 1));
  EXPECT_EQ(refusal(Division::kSlices, {"--ranks", "4", "--dp", "2", "--tp", "3"}),
            "--dp 2 --pp 1 --tp 3 make 6 ranks, but the number of ranks is 4; change one");
  EXPECT_NE(refusal(Division::kSlices, {"--timeline"}), "");
}

TEST(SettleRanks, ReplicasInShards) {
  const auto shape_of = [](const std::vector<std::string>& arguments) {
    return shape(plan_of(Division::kTrainer, arguments));
  };
  EXPECT_EQ(shape_of({}), Shape(2, 3, 3));
  EXPECT_EQ(shape_of({"--shard", "0", "--ranks", "6"}), Shape(2, 3, 3));
  EXPECT_EQ(shape_of({"--shard", "1"}), Shape(6, 1, 1));
  EXPECT_EQ(shape_of({"--shard", "3", "--ranks", "3"}), Shape(3, 1, 2));
  EXPECT_EQ(shape_of({"--shard", "3", "--dp", "2", "--pp", "1"}), Shape(2, 1, 3));
  EXPECT_EQ(plan_of(Division::kTrainer, {"--shard", "3"}).program["--shard"], "3");
  EXPECT_EQ(refusal(Division::kTrainer, {"--shard", "2", "--dp", "3", "--ranks", "4"}),
            "--shard 2 --dp 3: the number of ranks is 4; change one");
  const std::string error = refusal(Division::kTrainer, {"--shard", "2", "--pp", "2"});
  EXPECT_TRUE(contains(error, "only replicas of a whole model")) << error;
  EXPECT_NE(refusal(Division::kMesh, {"--shard", "1"}), "");
}

TEST(SettleRanks, ATrainersStagesMayHaveSeveralRanks) {
  const auto shape_of = [](const std::vector<std::string>& arguments) {
    const RunPlan plan = plan_of(Division::kTrainer, arguments);
    return std::tuple(plan.dp, plan.pp, plan.tp, plan.microbatches);
  };
  EXPECT_EQ(shape_of({}), std::tuple(2, 3, 1, 3));
  EXPECT_EQ(shape_of({"--tp", "2"}), std::tuple(2, 3, 2, 3));
  EXPECT_EQ(shape_of({"--tp", "2", "--ranks", "4"}), std::tuple(1, 2, 2, 6));
  EXPECT_EQ(shape_of({"--tp", "2", "--dp", "1", "--pp", "1"}), std::tuple(1, 1, 2, 6));
  EXPECT_EQ(refusal(Division::kTrainer, {"--tp", "2", "--dp", "2", "--pp", "3", "--ranks", "6"}),
            "--dp 2 --pp 3 --tp 2: 2 pipelines of 3 stages on 2 ranks each are 12 ranks, but the "
            "number of ranks is 6; change one");
  EXPECT_NE(refusal(Division::kTrainer, {"--tp", "2", "--ranks", "3"}), "");
  const std::string error = refusal(Division::kTrainer, {"--tp", "2", "--shard", "1"});
  EXPECT_TRUE(contains(error, "--shard 1 with --tp 2")) << error;
}

TEST(SettleRanks, AccumulateIsSaidWhereThereAreNoMicrobatches) {
  for (const Division division : {Division::kMesh, Division::kMicrobatches}) {
    const std::string error = refusal(division, {"--accumulate", "5"});
    EXPECT_TRUE(contains(error, "--microbatches times --waves")) << error;
  }
  const std::string error = refusal(Division::kStages, {"--accumulate", "5"});
  EXPECT_TRUE(contains(error, "one microbatch")) << error;
  EXPECT_EQ(plan_of(Division::kReplicas, {"--accumulate", "5"}).accumulate, 5);
  EXPECT_EQ(plan_of(Division::kNone, {"--accumulate", "5"}).accumulate, 5);
}

TEST(SettleRanks, RanksAreReplicasOrStages) {
  const RunPlan replicas = plan_of(Division::kReplicas, {"--ranks", "3"});
  EXPECT_EQ(std::tuple(replicas.dp, replicas.pp), std::tuple(3, 1));
  const RunPlan stages = plan_of(Division::kStages, {"--ranks", "3"});
  EXPECT_EQ(std::tuple(stages.dp, stages.pp, stages.accumulate), std::tuple(1, 3, 1));
  const RunPlan several =
      plan_of(Division::kMicrobatches, {"--ranks", "3", "--microbatches", "4", "--waves", "2"});
  EXPECT_EQ(std::tuple(several.dp, several.pp, several.accumulate), std::tuple(1, 3, 8));
}

TEST(SettleRanks, AWaveThroughSeveralStagesIsLimited) {
  EXPECT_EQ(
      refusal(Division::kMicrobatches, {"--ranks", "2", "--microbatches", "501"}),
      "--microbatches 501: a wave through several stages takes 500 at most; use more --waves");
  EXPECT_EQ(refusal(Division::kMicrobatches, {"--microbatches", "501"}), "");
}

/// What is settled for a run of two pipelines with three microbatches each, resumed with these
/// arguments.
RunPlan resumed(std::vector<std::string> arguments) {
  const TempFolder folder;
  const auto out = folder.path() / "run";
  UnfinishedCheckpoint checkpoint(out, 5);
  save_training_state(checkpoint.folder(), {.step = 5, .plan = mesh({})});
  checkpoint.publish();
  arguments.insert(arguments.end(), {"--resume", "--out", out.string()});
  return mesh(arguments);
}

TEST(SettleRanks, AResumedRunKeepsItsMicrobatchesAStep) {
  EXPECT_EQ(shape(resumed({})), Shape(2, 3, 3));
  EXPECT_EQ(shape(resumed({"--ranks", "1"})), Shape(1, 1, 6));
  EXPECT_EQ(shape(resumed({"--dp", "1", "--pp", "2"})), Shape(1, 2, 6));
  std::string error = error_of([] { resumed({"--dp", "4", "--pp", "1"}); });
  EXPECT_TRUE(contains(error, "takes 6 microbatches a step")) << error;
  error = error_of([] { resumed({"--microbatches", "6"}); });
  EXPECT_TRUE(contains(error, "make 12")) << error;
}

TEST(SettleRanks, AFileOfOptionsTellsTheWholeMesh) {
  const std::string file = mesh({"--dp", "2"}).config_file;
  for (const char* line : {"\ndp=2\n", "\npp=3\n", "\nmicrobatches=3\n"})
    EXPECT_TRUE(contains(file, line)) << line << "is not in " << file;
}

}  // namespace
}  // namespace lab::settle_ranks_test
