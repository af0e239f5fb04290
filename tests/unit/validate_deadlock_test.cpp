// Deadlocks of schedules under rendezvous: which are found, and which are none.
#include <gtest/gtest.h>

#include <random>

#include "common/pipeline/validate.h"
#include "tests/unit/error_of.h"
#include "tests/unit/pipeline_plans.h"

namespace lab::validate_deadlock_test {
namespace {

std::optional<ScheduleFault> fault_of(const std::string& text) {
  return validate(schedule_from_text(text, "text"));
}

TEST(Deadlock, NaiveMessagesOf1F1B) {
  const auto fault = validate(with_messages_beside(one_f_one_b_plan(3, 4), false));
  ASSERT_TRUE(fault);
  EXPECT_EQ(fault->message,
            "deadlock: 2 of 3 stages wait for each other in a circle\n"
            "stage 1 waits in the send >F1, its action 6 of 24, until stage 2 reaches the recv "
            "<F1, its action 5 of 16\n"
            "stage 2 waits in the send >B0, its action 4 of 16, until stage 1 reaches the recv "
            "<B0, its action 7 of 24");
  const std::vector<BlockedStage> cycle = {{1, {ActionKind::kSendActivation, 1}, 2},
                                           {2, {ActionKind::kSendGradient, 0}, 1}};
  EXPECT_EQ(fault->cycle, cycle);
}

TEST(Deadlock, NaiveMessagesOf1F1BWheneverStagesAndMicrobatchesAreTwo) {
  for (int stages = 1; stages <= 5; ++stages)
    for (int microbatches = 1; microbatches <= 7; ++microbatches) {
      const auto fault =
          validate(with_messages_beside(one_f_one_b_plan(stages, microbatches), false));
      EXPECT_EQ(fault.has_value(), stages > 1 && microbatches > 1) << stages << " " << microbatches;
    }
}

TEST(Deadlock, NotWithNaiveMessagesOfGPipe) {
  for (int stages = 1; stages <= 5; ++stages)
    for (int microbatches = 1; microbatches <= 7; ++microbatches)
      EXPECT_EQ(validate(with_messages_beside(gpipe_plan(stages, microbatches), false)),
                std::nullopt);
}

// Each exchanges an activation for a gradient with the other: F1 forward, B0 back.
std::string exchange(const std::string& first, const std::string& second) {
  return "stages 2 microbatches 2\n"
         "0: F0 >F0 F1 " +
         first +
         " B0 <B1 B1\n"
         "1: <F0 F0 B0 " +
         second + " F1 B1 >B1\n";
}

TEST(Deadlock, WhenBothSidesSendFirst) {
  const auto fault = fault_of(exchange(">F1 <B0", ">B0 <F1"));
  ASSERT_TRUE(fault);
  EXPECT_TRUE(fault->message.starts_with("deadlock: 2 of 2 stages")) << fault->message;
  EXPECT_EQ(fault->cycle.at(0), (BlockedStage{0, {ActionKind::kSendActivation, 1}, 1}));
}

TEST(Deadlock, WhenBothSidesReceiveFirst) {
  const auto fault = fault_of(exchange("<B0 >F1", "<F1 >B0"));
  ASSERT_TRUE(fault);
  EXPECT_EQ(fault->message,
            "deadlock: 2 of 2 stages wait for each other in a circle\n"
            "stage 0 waits in the recv <B0, its action 4 of 8, until stage 1 reaches the send "
            ">B0, its action 5 of 8\n"
            "stage 1 waits in the recv <F1, its action 4 of 8, until stage 0 reaches the send "
            ">F1, its action 5 of 8");
}

TEST(Deadlock, NotWhenOneSideSendsAndTheOtherReceivesFirst) {
  EXPECT_EQ(fault_of(exchange(">F1 <B0", "<F1 >B0")), std::nullopt);
  EXPECT_EQ(fault_of(exchange("<B0 >F1", ">B0 <F1")), std::nullopt);
}

TEST(Deadlock, NotWhenAnyOneOfTheMessagesIsPosted) {
  EXPECT_EQ(fault_of(exchange(">F1* <B0", ">B0 <F1")), std::nullopt);
  EXPECT_EQ(fault_of(exchange(">F1 <B0", ">B0* <F1")), std::nullopt);
  EXPECT_EQ(fault_of(exchange("<B0* >F1", ">B0 <F1")), std::nullopt);
  EXPECT_EQ(fault_of(exchange("<B0* >F1", "<F1 >B0")), std::nullopt);
}

TEST(Deadlock, NotWithOddAndEvenStagesInTurn) {
  EXPECT_EQ(fault_of("stages 3 microbatches 2\n"
                     "0: F0 >F0 F1 <B0 >F1 B0 <B1 B1\n"
                     "1: <F0 F0 >F0 <B0 B0 >B0 <F1 F1 >F1 <B1 B1 >B1\n"
                     "2: <F0 F0 B0 >B0 <F1 F1 B1 >B1\n"),
            std::nullopt);
}

TEST(Deadlock, InAPassThatReadsAPostedRecv) {
  const auto fault = fault_of(
      "stages 2 microbatches 2\n"
      "0: F0 >F0 <B0* B0 F1 >F1 <B1 B1\n"
      "1: <F0 F0 <F1* F1 B0 >B0 B1 >B1\n");
  ASSERT_TRUE(fault);
  EXPECT_EQ(fault->message,
            "deadlock: 2 of 2 stages wait for each other in a circle\n"
            "stage 0 waits before B0, its action 4 of 8, for its data until stage 1 reaches the "
            "send >B0, its action 6 of 8\n"
            "stage 1 waits before F1, its action 4 of 8, for its data until stage 0 reaches the "
            "send >F1, its action 6 of 8");
}

TEST(Deadlock, NamesTheCircleAndNotThoseWhoWaitForIt) {
  // Stages 0 and 1 wait for what stages 2 and 3 do not do.
  const auto fault = validate(with_messages_beside(one_f_one_b_plan(4, 4), false));
  ASSERT_TRUE(fault);
  ASSERT_EQ(fault->cycle.size(), 2U);
  EXPECT_EQ(fault->cycle[0].stage, 2);
  EXPECT_EQ(fault->cycle[0].waits_for, 3);
  EXPECT_EQ(fault->cycle[1].stage, 3);
  EXPECT_EQ(fault->cycle[1].waits_for, 2);
  EXPECT_TRUE(fault->message.starts_with("deadlock: 2 of 4 stages")) << fault->message;
}

// Passes in an order in which they were possible at random.
Schedule random_plan(int stages, int microbatches, std::mt19937& random) {
  Schedule plan{microbatches, std::vector<ActionList>(static_cast<size_t>(stages))};
  std::vector<std::pair<int, Action>> ready;
  for (int k = 0; k < microbatches; ++k) ready.push_back({0, {ActionKind::kForward, k}});
  while (!ready.empty()) {
    std::swap(ready[random() % ready.size()], ready.back());
    const auto [stage, action] = ready.back();
    ready.pop_back();
    plan.stages[static_cast<size_t>(stage)].push_back(action);
    const bool forward = action.kind == ActionKind::kForward;
    if (forward && stage == stages - 1)
      ready.push_back({stage, {ActionKind::kBackward, action.microbatch}});
    else if (forward || stage > 0)
      ready.push_back({stage + (forward ? 1 : -1), action});
  }
  return plan;
}

TEST(Deadlock, NeverWithPostedSends) {
  std::mt19937 random(1);
  int naive_deadlocks = 0;
  for (int i = 0; i < 300; ++i) {
    const int stages = 1 + static_cast<int>(random() % 5);
    const int microbatches = 1 + static_cast<int>(random() % 8);
    const Schedule plan = random_plan(stages, microbatches, random);
    ASSERT_EQ(validate(plan), std::nullopt) << to_text(plan);
    ASSERT_EQ(validate(with_messages_beside(plan, true)), std::nullopt) << to_text(plan);
    if (validate(with_messages_beside(plan, false))) ++naive_deadlocks;
  }
  EXPECT_GT(naive_deadlocks, 100);  // the schedules are not harmless
}

// All that can be posted is posted, the recvs before everything else.
TEST(Deadlock, NeverWithAllMessagesPosted) {
  std::mt19937 random(2);
  for (int i = 0; i < 100; ++i) {
    Schedule program = with_messages_beside(random_plan(4, 6, random), true);
    for (ActionList& actions : program.stages) {
      for (Action& action : actions) action.posted = is_message(action.kind);
      std::stable_partition(actions.begin(), actions.end(), [](const Action& action) {
        return action.posted && !is_send(action.kind);
      });
    }
    ASSERT_EQ(validate(program), std::nullopt) << to_text(program);
  }
}

}  // namespace
}  // namespace lab::validate_deadlock_test
