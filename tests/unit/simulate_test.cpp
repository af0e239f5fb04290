// Schedules in simulated time, against theory and against times worked out by hand.
#include "common/pipeline/simulate.h"

#include <gtest/gtest.h>

#include <limits>

#include "tests/unit/error_of.h"
#include "tests/unit/pipeline_plans.h"

namespace lab::simulate_test {
namespace {

using Spans = std::vector<Span>;

Schedule of_text(const std::string& text) { return schedule_from_text(text, "text"); }

Span forward(int k, double start, double end) { return {SpanKind::kForward, k, start, end}; }
Span backward(int k, double start, double end) { return {SpanKind::kBackward, k, start, end}; }
Span send(int k, double start, double end, int peer) {
  return {SpanKind::kSend, k, start, end, peer};
}
Span recv(int k, double start, double end, int peer) {
  return {SpanKind::kRecv, k, start, end, peer};
}

TEST(Simulate, EqualStagesNeedTheTimeOfTheory) {
  for (int p = 1; p <= 6; ++p)
    for (int m = 1; m <= 9; ++m)
      for (const StageCosts costs :
           {StageCosts{1, 2, 0}, StageCosts{1, 1, 0}, StageCosts{3, 5, 0}}) {
        const Timeline gpipe = simulate(gpipe_plan(p, m), {costs});
        const Timeline one_f_one_b = simulate(one_f_one_b_plan(p, m), {costs});
        const double theory = (m + p - 1) * (costs.forward + costs.backward);
        EXPECT_EQ(makespan(gpipe), theory) << p << " stages, " << m << " microbatches";
        EXPECT_EQ(makespan(one_f_one_b), theory) << p << " stages, " << m << " microbatches";
        EXPECT_NEAR(idle_share(gpipe), ideal_bubble(p, m), 1e-12);
        EXPECT_NEAR(idle_share(one_f_one_b), ideal_bubble(p, m), 1e-12);
        for (int rank = 0; rank < p; ++rank) {
          EXPECT_NEAR(idle_share(one_f_one_b, rank), ideal_bubble(p, m), 1e-12);
          EXPECT_EQ(peak_in_flight(gpipe, rank), m);
          EXPECT_EQ(peak_in_flight(one_f_one_b, rank), std::min(m, p - rank));
        }
      }
}

TEST(Simulate, FreePostedMessagesMakeAProgramAsFastAsItsPlan) {
  for (int p = 1; p <= 5; ++p)
    for (int m = 1; m <= 7; ++m)
      for (const Schedule& plan : {gpipe_plan(p, m), one_f_one_b_plan(p, m)})
        EXPECT_EQ(makespan(simulate(with_messages_beside(plan, true))), makespan(simulate(plan)));
}

TEST(Simulate, IdealBubble) {
  EXPECT_DOUBLE_EQ(ideal_bubble(3, 1), 2.0 / 3);
  EXPECT_DOUBLE_EQ(ideal_bubble(3, 6), 0.25);
  EXPECT_EQ(ideal_bubble(1, 5), 0);
  EXPECT_NE(error_of([] { ideal_bubble(0, 1); }), "");
  EXPECT_NE(error_of([] { ideal_bubble(1, 0); }), "");
}

TEST(Simulate, UnequalStages) {
  // Stage 1 takes twice the time of stage 0, and never waits once it has begun.
  const Timeline timeline = simulate(gpipe_plan(2, 2), {{1, 2, 0}, {2, 4, 0}});
  EXPECT_EQ(timeline.ranks[0].spans,
            (Spans{forward(0, 0, 1), forward(1, 1, 2), backward(0, 9, 11), backward(1, 13, 15)}));
  EXPECT_EQ(timeline.ranks[1].spans,
            (Spans{forward(0, 1, 3), forward(1, 3, 5), backward(0, 5, 9), backward(1, 9, 13)}));
  EXPECT_EQ(makespan(timeline), 15);
  EXPECT_DOUBLE_EQ(idle_share(timeline, 0), 9.0 / 15);
  EXPECT_DOUBLE_EQ(idle_share(timeline, 1), 3.0 / 15);
  EXPECT_DOUBLE_EQ(idle_share(timeline), 12.0 / 30);
}

TEST(Simulate, MessagesOfAPlanTakeTimeButHoldNobodyUp) {
  // Activations take 0.5, gradients 0.25: the cost is that of the stage that sends.
  const Timeline timeline = simulate(gpipe_plan(2, 2), {{1, 2, 0.5}, {1, 2, 0.25}});
  EXPECT_EQ(timeline.ranks[0].spans, (Spans{forward(0, 0, 1), forward(1, 1, 2),
                                            backward(0, 5.75, 7.75), backward(1, 7.75, 9.75)}));
  EXPECT_EQ(timeline.ranks[1].spans, (Spans{forward(0, 1.5, 2.5), forward(1, 2.5, 3.5),
                                            backward(0, 3.5, 5.5), backward(1, 5.5, 7.5)}));
  EXPECT_EQ(timeline.ranks[0].messages, (Spans{send(0, 1, 1.5, 1), send(1, 2, 2.5, 1),
                                               recv(0, 5.5, 5.75, 1), recv(1, 7.5, 7.75, 1)}));
  EXPECT_EQ(timeline.ranks[1].messages, (Spans{recv(0, 1, 1.5, 0), recv(1, 2, 2.5, 0),
                                               send(0, 5.5, 5.75, 0), send(1, 7.5, 7.75, 0)}));
}

TEST(Simulate, BlockingMessagesHoldBothSidesUp) {
  const Timeline timeline = simulate(of_text("stages 2 microbatches 2\n"
                                             "0: F0 >F0 F1 >F1 <B0 B0 <B1 B1\n"
                                             "1: <F0 F0 <F1 F1 B0 >B0 B1 >B1\n"),
                                     {{1, 2, 0.5}});
  EXPECT_EQ(
      timeline.ranks[0].spans,
      (Spans{forward(0, 0, 1), send(0, 1, 1.5, 1), forward(1, 1.5, 2.5), send(1, 2.5, 3, 1),
             recv(0, 3, 6.5, 1), backward(0, 6.5, 8.5), recv(1, 8.5, 9, 1), backward(1, 9, 11)}));
  // B1 is done at 8.5, when stage 0 has just begun to wait for it.
  EXPECT_EQ(
      timeline.ranks[1].spans,
      (Spans{recv(0, 0, 1.5, 0), forward(0, 1.5, 2.5), recv(1, 2.5, 3, 0), forward(1, 3, 4),
             backward(0, 4, 6), send(0, 6, 6.5, 0), backward(1, 6.5, 8.5), send(1, 8.5, 9, 0)}));
  EXPECT_EQ(timeline.ranks[1].messages, (Spans{recv(0, 0, 1.5, 0), recv(1, 2.5, 3, 0),
                                               send(0, 6, 6.5, 0), send(1, 8.5, 9, 0)}));
  EXPECT_EQ(timeline.ranks[0].messages, (Spans{send(0, 1, 1.5, 1), send(1, 2.5, 3, 1),
                                               recv(0, 3, 6.5, 1), recv(1, 8.5, 9, 1)}));
}

TEST(Simulate, ABlockingSendWaitsForItsReceiver) {
  // Stage 1 takes 3 for F0: until then stage 0 waits in >F1, though messages are free.
  const Timeline timeline =
      simulate(with_messages_beside(gpipe_plan(2, 2), false), {{1, 1, 0}, {3, 1, 0}});
  EXPECT_EQ(timeline.ranks[0].spans.at(2), send(1, 2, 4, 1));
  EXPECT_EQ(timeline.ranks[1].spans.at(0), recv(0, 0, 1, 0));
}

TEST(Simulate, PostedMessagesAreWaitedForWhereTheyAreNeeded) {
  const Timeline timeline = simulate(of_text("stages 2 microbatches 1\n"
                                             "0: F0 >F0* <B0* B0\n"
                                             "1: <F0* F0 B0 >B0*\n"),
                                     {{1, 2, 0.5}});
  // The pass waits, not the recv; the end waits for the posted send.
  EXPECT_EQ(timeline.ranks[0].spans,
            (Spans{forward(0, 0, 1), recv(0, 1, 5, 1), backward(0, 5, 7)}));
  EXPECT_EQ(timeline.ranks[1].spans, (Spans{recv(0, 0, 1.5, 0), forward(0, 1.5, 2.5),
                                            backward(0, 2.5, 4.5), send(0, 4.5, 5, 0)}));
  EXPECT_EQ(timeline.ranks[0].messages, (Spans{send(0, 1, 1.5, 1), recv(0, 1, 5, 1)}));
}

TEST(Simulate, APostedSendIsUnderWayWhileItsStageGoesOn) {
  const Timeline timeline =
      simulate(with_messages_beside(gpipe_plan(2, 2), true), {{1, 2, 0}, {3, 2, 0}});
  EXPECT_EQ(timeline.ranks[0].spans.at(2), recv(0, 2, 9, 1));  // nothing between F1 and this
  EXPECT_EQ(timeline.ranks[0].messages.at(1), send(1, 2, 4, 1));
}

TEST(Simulate, NamesStages) {
  const Timeline timeline = simulate(gpipe_plan(2, 1));
  EXPECT_EQ(timeline.unit, "");
  EXPECT_EQ(timeline.ranks.at(1).name, "stage 1");
}

TEST(Simulate, RefusesFaultySchedulesAndCosts) {
  EXPECT_TRUE(contains(error_of([] { simulate({1, {{}}}); }), "stage 0: F0 is missing"));
  EXPECT_TRUE(
      contains(error_of([] { simulate(with_messages_beside(one_f_one_b_plan(2, 2), false)); }),
               "deadlock: 2 of 2 stages"));
  const Schedule plan = gpipe_plan(3, 1);
  const auto error = [&](const std::vector<StageCosts>& costs) {
    return error_of([&] { simulate(plan, costs); });
  };
  EXPECT_EQ(error({{}, {}, {}}), "");
  EXPECT_TRUE(contains(error({}), "there are 0 for 3 stages"));
  EXPECT_TRUE(contains(error({{}, {}}), "there are 2 for 3 stages"));
  EXPECT_TRUE(contains(error({{}, {-1, 2, 0}, {}}), "the forward of stage 1 is -1"));
  EXPECT_TRUE(contains(error({{1, std::numeric_limits<double>::infinity(), 0}}),
                       "the backward of stage 0 is inf"));
  EXPECT_TRUE(contains(error({{1, 2, std::numeric_limits<double>::quiet_NaN()}}),
                       "the message of stage 0 is nan"));
}

TEST(Simulate, CostsMayBeZero) {
  const Timeline timeline = simulate(gpipe_plan(3, 2), {{0, 0, 0}});
  EXPECT_EQ(makespan(timeline), 0);
  EXPECT_EQ(idle_share(timeline), 0);
  EXPECT_EQ(timeline.ranks[2].spans.size(), 4U);
}

}  // namespace
}  // namespace lab::simulate_test
