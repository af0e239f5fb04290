// Which schedules can be run, and what is said of the others.
#include "common/pipeline/validate.h"

#include <gtest/gtest.h>

#include <chrono>

#include "tests/unit/error_of.h"
#include "tests/unit/pipeline_plans.h"

namespace lab::validate_test {
namespace {

Schedule of_text(const std::string& text) { return schedule_from_text(text, "text"); }

std::string fault_of(const std::string& text) {
  const auto fault = validate(of_text(text));
  if (!fault) return "";
  EXPECT_TRUE(fault->cycle.empty()) << fault->message;
  return fault->message;
}

// Of one stage with two microbatches.
std::string fault_of_stage(const std::string& actions) {
  return fault_of("stages 1 microbatches 2\n0: " + actions);
}

// Of the middle one of three stages with one microbatch; the others are right.
std::string fault_of_middle(const std::string& actions) {
  return fault_of("stages 3 microbatches 1\n0: F0 >F0 <B0 B0\n1: " + actions +
                  "\n2: <F0 F0 B0 >B0\n");
}

TEST(Validate, NeedsStagesAndMicrobatches) {
  EXPECT_EQ(validate({})->message, "the schedule has no stages");
  EXPECT_EQ(validate({1, {}})->message, "the schedule has no stages");
  EXPECT_EQ(validate({0, {{}, {}}})->message, "the schedule has no microbatches");
  EXPECT_EQ(validate({-1, {{}}})->message, "the schedule has no microbatches");
}

TEST(Validate, EveryPassOnceAndBackwardBehindForward) {
  EXPECT_EQ(fault_of_stage("F0 B0 F1 B1"), "");
  EXPECT_EQ(fault_of_stage("F1 F0 B0 B1"), "");  // any order of microbatches
  EXPECT_EQ(fault_of_stage("F0 B0 B1"), "stage 0: F1 is missing");
  EXPECT_EQ(fault_of_stage("F0 F1 B0"), "stage 0: B1 is missing");
  EXPECT_EQ(fault_of_stage(""), "stage 0: F0 is missing");
  EXPECT_EQ(fault_of_stage("F0 B0 F1 F0 B1"),
            "stage 0: F0 comes twice, as action 1 and as action 4");
  EXPECT_EQ(fault_of_stage("F0 B0 F1 B1 B1"),
            "stage 0: B1 comes twice, as action 4 and as action 5");
  EXPECT_EQ(fault_of_stage("F0 B1 F1 B0"), "stage 0: B1 comes before F1");
}

TEST(Validate, MicrobatchesAreInRange) {
  Schedule plan = gpipe_plan(2, 3);
  plan.stages[1][2].microbatch = 3;
  EXPECT_EQ(validate(plan)->message, "stage 1: F3, but the microbatches are 0 to 2");
  plan.stages[1][2].microbatch = -1;
  EXPECT_EQ(validate(plan)->message, "stage 1: F-1, but the microbatches are 0 to 2");
}

TEST(Validate, AnnouncedMicrobatchesCostNothing) {
  Schedule plan = gpipe_plan(2, 3);
  plan.microbatches = 2'000'000'000;
  EXPECT_EQ(validate(plan)->message, "stage 0: F3 is missing");
}

TEST(Validate, EveryMessageOnceAndOnTheRightSideOfItsPass) {
  EXPECT_EQ(fault_of_middle("<F0 F0 >F0 <B0 B0 >B0"), "");
  EXPECT_EQ(fault_of_middle("F0 >F0 <B0 B0 >B0"), "stage 1: <F0 is missing");
  EXPECT_EQ(fault_of_middle("<F0 F0 <B0 B0 >B0"), "stage 1: >F0 is missing");
  EXPECT_EQ(fault_of_middle("<F0 F0 >F0 B0 >B0"), "stage 1: <B0 is missing");
  EXPECT_EQ(fault_of_middle("<F0 F0 >F0 <B0 B0"), "stage 1: >B0 is missing");
  EXPECT_EQ(fault_of_middle("F0 B0"), "stage 1: <F0 is missing");
  EXPECT_EQ(fault_of_middle("<F0 F0 >F0 <B0 B0 >B0 >B0*"),
            "stage 1: >B0 comes twice, as action 6 and as action 7");
  EXPECT_EQ(fault_of_middle("F0 <F0 >F0 <B0 B0 >B0"),
            "stage 1: <F0 comes after F0, which reads it");
  EXPECT_EQ(fault_of_middle("<F0 F0 >F0 B0 <B0* >B0"),
            "stage 1: <B0 comes after B0, which reads it");
  EXPECT_EQ(fault_of_middle("<F0 >F0* F0 <B0 B0 >B0"),
            "stage 1: >F0 comes before F0, which makes it");
  EXPECT_EQ(fault_of_middle("<F0 F0 >F0 <B0 >B0 B0"),
            "stage 1: >B0 comes before B0, which makes it");
}

TEST(Validate, NothingGoesOverTheEndsOfThePipeline) {
  const std::string first = "stages 2 microbatches 1\n1: <F0 F0 B0 >B0\n0: F0 >F0 <B0 B0 ";
  EXPECT_EQ(fault_of(first), "");
  EXPECT_TRUE(fault_of(first + "<F0").starts_with("stage 0: <F0, but the first stage"));
  EXPECT_TRUE(fault_of(first + ">B0").starts_with("stage 0: >B0, but the first stage"));
  const std::string last = "stages 2 microbatches 1\n0: F0 >F0 <B0 B0\n1: <F0 F0 B0 >B0 ";
  EXPECT_TRUE(fault_of(last + ">F0").starts_with("stage 1: >F0, but the last stage"));
  EXPECT_TRUE(fault_of(last + "<B0*").starts_with("stage 1: <B0*, but the last stage"));
  EXPECT_TRUE(fault_of_stage("F0 >F0 B0 F1 B1").starts_with("stage 0: >F0, but the last stage"));
}

TEST(Validate, PlansOfThePapersAreRight) {
  for (int stages = 1; stages <= 5; ++stages)
    for (int microbatches = 1; microbatches <= 7; ++microbatches) {
      EXPECT_EQ(validate(gpipe_plan(stages, microbatches)), std::nullopt);
      EXPECT_EQ(validate(one_f_one_b_plan(stages, microbatches)), std::nullopt);
    }
}

TEST(Validate, ThePassesOfAPlanMayWaitForEachOther) {
  const auto fault = validate(of_text("stages 2 microbatches 2\n0: F0 B0 F1 B1\n1: F0 F1 B0 B1\n"));
  ASSERT_TRUE(fault);
  EXPECT_EQ(fault->message,
            "impossible order: 2 of 2 stages wait for each other in a circle\n"
            "stage 0 waits in B0, its action 2 of 4, until stage 1 has done B0, its action 3 of 4\n"
            "stage 1 waits in F1, its action 2 of 4, until stage 0 has done F1, its action 3 of 4");
  const std::vector<BlockedStage> cycle = {{0, {ActionKind::kBackward, 0}, 1},
                                           {1, {ActionKind::kForward, 1}, 0}};
  EXPECT_EQ(fault->cycle, cycle);
}

TEST(Validate, RequireValidNamesTheOrigin) {
  EXPECT_EQ(error_of([] { require_valid(gpipe_plan(2, 2), "plan.txt"); }), "");
  EXPECT_EQ(error_of([] {
              require_valid({1, {{}}}, "plan.txt");
            }),
            "plan.txt: stage 0: F0 is missing");
}

TEST(Validate, IsFastForManyMicrobatchesAndStages) {
  const Schedule program = with_messages_beside(one_f_one_b_plan(64, 2000), true);
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(validate(program), std::nullopt);
  // 0.1 s; a search through the lists for each message would take minutes.
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
}

}  // namespace
}  // namespace lab::validate_test
