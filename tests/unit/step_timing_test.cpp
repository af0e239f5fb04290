// Where the time and the bytes of a step went.
#include "common/pipeline/step_timing.h"

#include <gtest/gtest.h>

#include "common/pipeline/standstill.h"
#include "common/run/timeline/recorded_timeline.h"
#include "tests/unit/error_of.h"
#include "tests/unit/example_report.h"

namespace lab::step_timing_test {
namespace {

Span collective(std::optional<OpKind> kind, double start, double end, uint64_t bytes,
                uint64_t members, int root = -1) {
  return {.kind = SpanKind::kCollective,
          .start = start,
          .end = end,
          .peer = root,
          .bytes = bytes,
          .collective = kind,
          .members = members};
}

// Rank 1 waits from 1 on for a message that rank 0 posts at 4; it is there at 6.
Timeline late_message() {
  Timeline timeline{.unit = "s", .ranks = std::vector<RankTimeline>(2)};
  const Span sent{SpanKind::kSend, 0, 4, 6, 1, 100};
  const Span received{SpanKind::kRecv, 0, 1, 6, 0, 100};
  timeline.ranks[0] = {"sender", {{SpanKind::kForward, 0, 0, 4}, sent}, {sent}};
  timeline.ranks[1] = {"", {received, {SpanKind::kForward, 0, 6, 9}}, {received}};
  timeline.ranks[1].spans.push_back({SpanKind::kOptimizer, -1, 9, 10});
  return timeline;
}

TEST(RankShares, AMessageIsWaitedForUntilItIsPostedAndTravelsFromThenOn) {
  const std::vector<RankShare> shares = rank_shares(late_message());
  ASSERT_EQ(shares.size(), 2U);
  EXPECT_EQ(shares[0].name, "sender");
  EXPECT_DOUBLE_EQ(shares[0].compute, 0.4);
  EXPECT_DOUBLE_EQ(shares[0].communication, 0.2) << "its receiver was there";
  EXPECT_DOUBLE_EQ(shares[0].waiting, 0.0);
  EXPECT_DOUBLE_EQ(shares[0].other, 0.4);
  EXPECT_EQ(shares[1].name, "rank 1");
  EXPECT_DOUBLE_EQ(shares[1].waiting, 0.3);
  EXPECT_DOUBLE_EQ(shares[1].communication, 0.2);
  EXPECT_DOUBLE_EQ(shares[1].compute, 0.4);
  EXPECT_DOUBLE_EQ(shares[1].other, 0.1);
}

TEST(RankShares, MessagesWithOneNumberMeetInTheirOrder) {
  Timeline timeline{.unit = "", .ranks = std::vector<RankTimeline>(2)};
  for (const double wave : {0.0, 10.0}) {
    const Span sent{SpanKind::kSend, 0, wave + 3, wave + 4, 1, 8};
    const Span received{SpanKind::kRecv, 0, wave, wave + 4, 0, 8};
    timeline.ranks[0].messages.push_back(sent);
    timeline.ranks[1].messages.push_back(received);
    timeline.ranks[1].spans.push_back(received);
  }
  EXPECT_EQ(counterpart_times(timeline)[1], (std::vector{3.0, 13.0}));
}

TEST(RankShares, ACollectiveIsWaitedForUntilItsLastMemberHasEntered) {
  Timeline timeline{.unit = "s", .ranks = std::vector<RankTimeline>(3)};
  const auto reduce = [](double start, double end, uint64_t members) {
    return collective(OpKind::kAllReduce, start, end, 4, members);
  };
  timeline.ranks[0].spans = {reduce(0, 5, 0b101), reduce(6, 10, 0b101)};
  timeline.ranks[1].spans = {reduce(4.5, 5, 0b010)};  // another group
  timeline.ranks[2].spans = {reduce(3, 5, 0b101), reduce(9, 10, 0b101)};
  const std::vector<std::vector<double>> there = counterpart_times(timeline);
  EXPECT_EQ(there[0], (std::vector{3.0, 9.0}));
  EXPECT_EQ(there[1], (std::vector{4.5}));
  EXPECT_EQ(there[2], (std::vector{3.0, 9.0}));
}

TEST(RankShares, WithoutTheOtherSideAllIsWaiting) {
  Timeline timeline = late_message();
  timeline.ranks[0].messages.clear();
  EXPECT_DOUBLE_EQ(rank_shares(timeline)[1].waiting, 0.5);
  timeline.ranks[1].spans = {collective(OpKind::kAllReduce, 0, 10, 4, 0)};
  EXPECT_DOUBLE_EQ(rank_shares(timeline)[1].waiting, 1.0) << "members not known";
}

TEST(RankShares, AddUpToOne) {
  const Timeline timeline = example_timeline(6);
  for (const RankShare& share : rank_shares(timeline)) {
    EXPECT_NEAR(share.compute + share.communication + share.waiting + share.other, 1, 1e-12);
    for (const double part : {share.compute, share.communication, share.waiting})
      EXPECT_GT(part, 0) << share.name;
    EXPECT_GE(share.other, 0) << share.name;
  }
  EXPECT_DOUBLE_EQ(rank_shares({"s", std::vector<RankTimeline>(1)})[0].other, 1);
}

TEST(LinkTraffic, MessagesAreCountedWhereTheyAreSent) {
  const std::vector<LinkTraffic> links = link_traffic(late_message());
  ASSERT_EQ(links.size(), 1U);
  EXPECT_EQ(links[0], (LinkTraffic{0, 1, 1, 100, 0, 0}));
}

TEST(LinkTraffic, CollectivesCountByTheirFormulas) {
  const auto traffic = [](std::optional<OpKind> kind, int root) {
    Timeline timeline{.unit = "s", .ranks = std::vector<RankTimeline>(5)};
    for (const size_t rank : {0U, 2U, 3U})
      timeline.ranks[rank].spans = {collective(kind, 0, 1, 1000, 0b1101, root)};
    return link_traffic(timeline);
  };
  using Links = std::vector<LinkTraffic>;
  const auto ring = [](double bytes) {
    return Links{{0, 2, 0, 0, 1, bytes}, {2, 3, 0, 0, 1, bytes}, {3, 0, 0, 0, 1, bytes}};
  };
  EXPECT_EQ(traffic(OpKind::kAllReduce, -1), ring(2.0 * 2 / 3 * 1000));
  EXPECT_EQ(traffic(OpKind::kAllGather, -1), ring(2000));
  EXPECT_EQ(traffic(OpKind::kReduceScatter, -1), ring(2000));
  EXPECT_EQ(traffic(OpKind::kBarrier, -1), ring(0));
  EXPECT_EQ(traffic(OpKind::kBroadcast, 3), (Links{{3, 0, 0, 0, 1, 1000}, {3, 2, 0, 0, 1, 1000}}));
  EXPECT_EQ(traffic(OpKind::kReduce, 0), (Links{{2, 0, 0, 0, 1, 1000}, {3, 0, 0, 0, 1, 1000}}));
  EXPECT_TRUE(traffic(std::nullopt, -1).empty());
}

TEST(LinkTraffic, OfTwoPipelinesOfThreeStages) {
  const std::vector<LinkTraffic> links = link_traffic(example_timeline(6));
  ASSERT_EQ(links.size(), 14U) << "four in each pipeline, two for each of three stages";
  for (const LinkTraffic& link : links) {
    const bool between_stages = link.from / 3 == link.to / 3;
    EXPECT_EQ(link.messages, between_stages ? 6U : 0U);
    EXPECT_EQ(link.message_bytes, between_stages ? 6 * kActivationBytes : 0U);
    EXPECT_EQ(link.collective_bytes, between_stages ? 0 : static_cast<double>(kGradientBytes));
  }
}

TEST(LinkTraffic, MembersComeFromTheFlightRecord) {
  const OpRecord op{.kind = OpKind::kAllReduce,
                    .state = OpState::kDone,
                    .group = 7,
                    .bytes = 800,
                    .posted_ns = 10,
                    .waiting_ns = 10,
                    .done_ns = 20};
  const TimeWindow window{.begin_ns = 0, .end_ns = 100};
  const RankTimeline rank = rank_timeline({op}, window, {{.id = 7, .members = 0b11, .name = "x"}});
  ASSERT_EQ(rank.spans.size(), 1U);
  EXPECT_EQ(rank.spans[0].members, 0b11U);
  EXPECT_EQ(rank.spans[0].collective, OpKind::kAllReduce);
  EXPECT_EQ(link_traffic({"s", {rank, {}}}), (std::vector{LinkTraffic{0, 1, 0, 0, 1, 800}}));
  EXPECT_EQ(rank_timeline({op}, window).spans[0].members, 0U);
}

TEST(TheoryOf, PassesAreAsLongAsMeasuredAndMessagesTakeNoTime) {
  Timeline measured{.unit = "s", .ranks = std::vector<RankTimeline>(4)};
  for (size_t rank = 0; rank < 4; ++rank) {
    measured.ranks[rank].name = fmt::format("rank {}", rank);
    measured.ranks[rank].spans = {{SpanKind::kForward, 0, 0, 1},
                                  {SpanKind::kForward, 1, 5, 8},  // 2 on average
                                  {SpanKind::kBackward, 0, 10, 14},
                                  {SpanKind::kBackward, 1, 20, 24}};
  }
  const Timeline theory = theory_of(measured, with_messages_beside(gpipe_plan(2, 2), true));
  ASSERT_EQ(theory.rank_count(), 4);
  EXPECT_EQ(theory.ranks[3].name, "rank 3");
  EXPECT_DOUBLE_EQ(makespan(theory), 3 * 2 + 3 * 4) << "(m+p-1) forwards and backwards";
  EXPECT_DOUBLE_EQ(idle_share(theory), ideal_bubble(2, 2));
  for (const Span& message : theory.ranks[2].messages) EXPECT_EQ(message.peer, 3);
}

TEST(TheoryOf, TheLossBelongsToTheForward) {
  Timeline measured{.unit = "s", .ranks = std::vector<RankTimeline>(1)};
  measured.ranks[0].spans = {
      {SpanKind::kForward, 0, 0, 1}, {SpanKind::kLoss, -1, 1, 1.5}, {SpanKind::kBackward, 0, 2, 4}};
  EXPECT_DOUBLE_EQ(makespan(theory_of(measured, gpipe_plan(1, 1))), 3.5);
}

TEST(TheoryOf, SeveralWavesFollowEachOther) {
  Timeline measured = example_timeline(6);
  const Timeline once = theory_of(measured, example_schedule(6));
  const Timeline waves = theory_of(measured, example_schedule(3));
  const auto passes = [](const Timeline& timeline) {
    return std::ranges::count(timeline.ranks[0].spans, SpanKind::kForward, &Span::kind);
  };
  EXPECT_EQ(passes(once), 6);
  EXPECT_EQ(passes(waves), 6) << "two waves of three";
  EXPECT_GT(makespan(waves), makespan(once)) << "each wave fills and drains the pipeline";
  for (const Span& span : waves.ranks[0].spans) EXPECT_LT(span.microbatch, 3);
}

TEST(TheoryOf, RefusesRanksThatAreNoPipelines) {
  EXPECT_TRUE(contains(error_of([] { theory_of(example_timeline(2), gpipe_plan(4, 2)); }),
                       "6 measured ranks do not make pipelines of 4 stages"));
}

}  // namespace
}  // namespace lab::step_timing_test
