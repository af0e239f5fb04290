// From flight records to a timeline.
#include "common/run/timeline/recorded_timeline.h"

#include <gtest/gtest.h>

#include "tests/unit/tiny_training.h"

namespace lab::recorded_timeline_test {
namespace {

constexpr int64_t kMs = 1'000'000;

OpRecord record_of(OpKind kind, int64_t posted_ms, int64_t waiting_ms, int64_t done_ms,
                   int microbatch = -1) {
  return {.kind = kind,
          .peer = 1,
          .tag = 7,
          .microbatch = microbatch,
          .bytes = 100,
          .posted_ns = posted_ms * kMs,
          .waiting_ns = waiting_ms * kMs,
          .done_ns = done_ms * kMs};
}

TEST(RecordedTimeline, TimesCountFromTheWindowsBegin) {
  const RankTimeline rank = rank_timeline(
      {record_of(OpKind::kForward, 100, 0, 130, 2), record_of(OpKind::kBackward, 140, 0, 200, 2)},
      {.begin_ns = 100 * kMs, .end_ns = 300 * kMs});
  ASSERT_EQ(rank.spans.size(), 2U);
  EXPECT_EQ(rank.spans[0].kind, SpanKind::kForward);
  EXPECT_EQ(rank.spans[0].microbatch, 2);
  EXPECT_DOUBLE_EQ(rank.spans[0].start, 0.0);
  EXPECT_DOUBLE_EQ(rank.spans[0].end, 0.030);
  EXPECT_DOUBLE_EQ(rank.spans[1].end, 0.100);
  EXPECT_TRUE(rank.messages.empty());
}

TEST(RecordedTimeline, OnlyWhatBeganInTheWindowCounts) {
  const RankTimeline rank = rank_timeline(
      {record_of(OpKind::kForward, 90, 0, 110, 0), record_of(OpKind::kForward, 200, 0, 210, 0),
       record_of(OpKind::kForward, 199, 0, 250, 1)},
      {.begin_ns = 100 * kMs, .end_ns = 200 * kMs});
  ASSERT_EQ(rank.spans.size(), 1U);
  EXPECT_DOUBLE_EQ(rank.spans[0].end, 0.1) << "cut at the window's end";
}

TEST(RecordedTimeline, AMessageStandsStillFromItsWaitOn) {
  const RankTimeline rank =
      rank_timeline({record_of(OpKind::kSend, 100, 160, 180), record_of(OpKind::kRecv, 110, 0, 0)},
                    {.begin_ns = 100 * kMs, .end_ns = 200 * kMs});
  ASSERT_EQ(rank.spans.size(), 1U) << "the recv was never waited for";
  EXPECT_EQ(rank.spans[0].kind, SpanKind::kSend);
  EXPECT_DOUBLE_EQ(rank.spans[0].start, 0.060);
  ASSERT_EQ(rank.messages.size(), 2U);
  EXPECT_DOUBLE_EQ(rank.messages[0].start, 0.0) << "under way since it was posted";
  EXPECT_EQ(rank.messages[0].microbatch, 7) << "its tag, as nothing else says which";
  EXPECT_EQ(rank.messages[0].bytes, 100U);
}

TEST(RecordedTimeline, ByOneClockALateRankBeginsLate) {
  const std::vector<RecordedWindow> ranks{
      {"stage 0", {100 * kMs, 200 * kMs}, {record_of(OpKind::kForward, 100, 0, 250)}, {}},
      {"stage 1", {130 * kMs, 300 * kMs}, {record_of(OpKind::kForward, 140, 0, 150)}, {}}};
  const Timeline one_clock = timeline_of(ranks, true);
  EXPECT_EQ(one_clock.of(1).name, "stage 1");
  EXPECT_DOUBLE_EQ(one_clock.of(0).spans[0].end, 0.100) << "cut at its own window's end";
  EXPECT_DOUBLE_EQ(one_clock.of(1).spans[0].start, 0.040);
  EXPECT_DOUBLE_EQ(timeline_of(ranks, false).of(1).spans[0].start, 0.010);
}

TEST(RecordedTimeline, PassesLossAndUpdatesAreNoted) {
  FlightRecorder recorder(0);
  LlamaStage model(tiny_config(), StageSpan::whole(tiny_config()), Device::kCpu, 1);
  Sgd sgd;
  record_passes(model, recorder);
  RecordedOptimizer optimizer(sgd, recorder);
  const auto loss = recorded_loss(lab01::causal_lm_loss, recorder);

  const TimeWindow window{.begin_ns = monotonic_now_ns(), .end_ns = INT64_MAX};
  const TokenBatch batch = pattern_batch(0);
  const Tensor logits = model.forward(batch, 5);
  loss(logits, batch, batch.target_count());
  model.backward(logits, 5);
  optimizer.step(model.parameters(), model.gradients(), 0.1F);
  EXPECT_EQ(sgd.steps(), optimizer.steps());

  const RankTimeline rank = rank_timeline(recorder.history(), window);
  std::vector<SpanKind> kinds;
  for (const Span& span : rank.spans) kinds.push_back(span.kind);
  EXPECT_EQ(kinds, (std::vector{SpanKind::kForward, SpanKind::kLoss, SpanKind::kBackward,
                                SpanKind::kOptimizer}));
  EXPECT_EQ(rank.spans[0].microbatch, 5);
  EXPECT_EQ(rank.spans[2].microbatch, 5);
}

TEST(RecordedTimeline, APassThatFailsHasAnEnd) {
  FlightRecorder recorder(0);
  LlamaStage model(tiny_config(), StageSpan::whole(tiny_config()), Device::kCpu, 1);
  record_passes(model, recorder);
  EXPECT_THROW(model.backward(Tensor::empty({1}), 0), Error);
  EXPECT_TRUE(recorder.snapshot().pending.empty());
}

}  // namespace
}  // namespace lab::recorded_timeline_test
