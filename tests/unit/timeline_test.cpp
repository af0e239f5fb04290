// Figures of timelines.
#include "common/pipeline/timeline.h"

#include <gtest/gtest.h>

namespace lab::timeline_test {
namespace {

// Rank 0 computes for 1 + 2 + 1 of 8, rank 1 for 2; the rest it waits, or nothing is known.
Timeline example() {
  Timeline timeline{"s", std::vector<RankTimeline>(3)};
  timeline.ranks[0].spans = {{SpanKind::kForward, 0, 0, 1},
                             {SpanKind::kSend, 0, 1, 2, 1},
                             {SpanKind::kBackward, 0, 3, 5},
                             {SpanKind::kCollective, -1, 5, 7},
                             {SpanKind::kOptimizer, -1, 7, 8}};
  timeline.ranks[0].messages = {{SpanKind::kRecv, 9, 0, 100, 1}};  // counts for nothing
  timeline.ranks[1].spans = {
      {SpanKind::kRecv, 0, 0, 2, 0}, {SpanKind::kForward, 0, 2, 3}, {SpanKind::kLoss, 0, 3, 4}};
  return timeline;
}

TEST(Timeline, MakespanAndIdleShares) {
  const Timeline timeline = example();
  EXPECT_EQ(makespan(timeline), 8);
  EXPECT_EQ(compute_time(timeline, 0), 4);
  EXPECT_EQ(compute_time(timeline, 1), 2);
  EXPECT_DOUBLE_EQ(idle_share(timeline, 0), 0.5);
  EXPECT_DOUBLE_EQ(idle_share(timeline, 1), 0.75);
  EXPECT_DOUBLE_EQ(idle_share(timeline, 2), 1);
  EXPECT_DOUBLE_EQ(idle_share(timeline), 0.75);
}

TEST(Timeline, CollectivesWithinAPassAreNotComputing) {
  Timeline timeline{"s", std::vector<RankTimeline>(1)};
  timeline.ranks[0].spans = {{SpanKind::kForward, 0, 0, 5},
                             {SpanKind::kCollective, -1, 1, 2},
                             {SpanKind::kCollective, -1, 4, 5},
                             {SpanKind::kCollective, -1, 5, 7},
                             {SpanKind::kBackward, 0, 7, 8}};
  EXPECT_EQ(compute_time(timeline, 0), 4);
  EXPECT_DOUBLE_EQ(idle_share(timeline), 0.5);
}

TEST(Timeline, NothingHappened) {
  EXPECT_EQ(makespan({}), 0);
  EXPECT_EQ(idle_share({}), 0);
  const Timeline timeline{"", std::vector<RankTimeline>(2)};
  EXPECT_EQ(makespan(timeline), 0);
  EXPECT_EQ(idle_share(timeline), 0);
  EXPECT_EQ(idle_share(timeline, 1), 0);
  EXPECT_EQ(peak_in_flight(timeline, 1), 0);
}

TEST(Timeline, PeakInFlightCountsBegunAndNotEnded) {
  Timeline timeline{"", std::vector<RankTimeline>(1)};
  double now = 0;
  for (const char pass : std::string("FFBFFBBBFB")) {
    const SpanKind kind = pass == 'F' ? SpanKind::kForward : SpanKind::kBackward;
    timeline.ranks[0].spans.push_back({kind, 0, now, now + 1});
    now += 1;
  }
  EXPECT_EQ(peak_in_flight(timeline, 0), 3);
}

TEST(Timeline, SpansHaveNamesOfTheirOwn) {
  EXPECT_EQ(span_name(SpanKind::kForward), "forward");
  EXPECT_EQ(span_name(SpanKind::kBackward), "backward");
  EXPECT_EQ(span_name(SpanKind::kLoss), "loss");
  EXPECT_EQ(span_name(SpanKind::kOptimizer), "optimizer");
  EXPECT_EQ(span_name(SpanKind::kSend), "send");
  EXPECT_EQ(span_name(SpanKind::kRecv), "recv");
  EXPECT_EQ(span_name(SpanKind::kCollective), "collective");
  EXPECT_TRUE(is_compute(SpanKind::kOptimizer));
  EXPECT_FALSE(is_compute(SpanKind::kSend));
}

}  // namespace
}  // namespace lab::timeline_test
