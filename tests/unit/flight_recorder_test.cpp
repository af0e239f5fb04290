// FlightRecorder: what it records, and what it forgets.
#include "common/comm/diagnosis/flight_recorder.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <string>
#include <thread>
#include <vector>

#include "common/error.h"
#include "tests/unit/error_of.h"

namespace lab::flight_recorder_test {
namespace {

OpRecord message(OpKind kind, int peer, int tag, uint64_t sequence, uint64_t bytes = 16) {
  return {.kind = kind, .peer = peer, .tag = tag, .bytes = bytes, .sequence = sequence};
}

/// From posting to the end.
void whole(FlightRecorder& recorder, const OpRecord& op) {
  const uint64_t id = recorder.posted(op);
  recorder.waiting(id);
  recorder.done(id);
}

TEST(FlightRecorder, TakesAnOperationFromPostingToTheEnd) {
  int64_t now = 100;
  FlightRecorder recorder(1, [&] { return now; });
  recorder.add_group(0, 0b11, "world");
  const uint64_t id = recorder.posted(message(OpKind::kRecv, 0, 7, 0, 64));
  EXPECT_EQ(id, 1u);
  RankSnapshot snapshot = recorder.snapshot();
  EXPECT_EQ(snapshot.rank, 1);
  EXPECT_EQ(snapshot.pid, getpid());
  EXPECT_EQ(snapshot.waiting(), nullptr);
  ASSERT_EQ(snapshot.pending.size(), 1u);
  EXPECT_EQ(snapshot.pending[0].state, OpState::kPosted);
  EXPECT_EQ(snapshot.pending[0].posted_ns, 100);
  EXPECT_EQ(snapshot.traffic[static_cast<size_t>(OpKind::kRecv)].operations, 1u);
  EXPECT_EQ(snapshot.traffic[static_cast<size_t>(OpKind::kRecv)].bytes, 64u);

  now = 200;
  recorder.waiting(id);
  snapshot = recorder.snapshot();
  ASSERT_NE(snapshot.waiting(), nullptr);
  EXPECT_EQ(snapshot.waiting()->waiting_ns, 200);
  EXPECT_EQ(snapshot.waiting()->tag, 7);
  EXPECT_EQ(snapshot.taken_ns, 200);

  now = 300;
  recorder.done(id);
  snapshot = recorder.snapshot();
  EXPECT_TRUE(snapshot.pending.empty());
  ASSERT_EQ(snapshot.recent.size(), 1u);
  EXPECT_EQ(snapshot.recent[0].state, OpState::kDone);
  ASSERT_EQ(recorder.history().size(), 1u);
  EXPECT_EQ(recorder.history()[0].done_ns, 300);
  EXPECT_EQ(recorder.history()[0].posted_ns, 100);
}

TEST(FlightRecorder, EveryEntryRaisesTheEpoch) {
  FlightRecorder recorder(0);
  std::vector<uint64_t> epochs{recorder.snapshot().epoch};
  const auto next = [&] { epochs.push_back(recorder.snapshot().epoch); };
  recorder.add_group(0, 0b11, "world"), next();
  const uint64_t id = recorder.posted(message(OpKind::kSend, 1, 0, 0));
  next();
  recorder.waiting(id), next();
  recorder.done(id), next();
  recorder.leave(), next();
  for (size_t i = 1; i < epochs.size(); ++i) EXPECT_EQ(epochs[i], epochs[i - 1] + 1) << i;
  recorder.done(id), next();
  EXPECT_EQ(epochs.back(), epochs[epochs.size() - 2]) << "an operation ended twice";
  EXPECT_TRUE(recorder.snapshot().left);
}

TEST(FlightRecorder, CountsCollectivesOfEachGroupWhenTheyAreEntered) {
  FlightRecorder recorder(0);
  recorder.add_group(0, 0b111, "world");
  recorder.add_group(77, 0b101, "pipeline 1");
  recorder.posted({.kind = OpKind::kBarrier, .group = 0, .sequence = 1});
  recorder.posted({.kind = OpKind::kAllReduce, .group = 77, .sequence = 1});
  recorder.posted({.kind = OpKind::kAllReduce, .group = 77, .sequence = 2});
  const RankSnapshot snapshot = recorder.snapshot();
  ASSERT_EQ(snapshot.groups.size(), 2u);
  EXPECT_EQ(snapshot.groups[0].name, "world");
  EXPECT_EQ(snapshot.groups[0].collectives, 1u);
  EXPECT_EQ(snapshot.groups[1].id, 77u);
  EXPECT_EQ(snapshot.groups[1].members, 0b101u);
  EXPECT_EQ(snapshot.groups[1].name, "pipeline 1");
  EXPECT_EQ(snapshot.groups[1].collectives, 2u);
  EXPECT_THROW(recorder.posted({.kind = OpKind::kBarrier, .group = 5, .sequence = 1}), Error);
}

TEST(FlightRecorder, GroupsAreLimitedAndTheirNamesCut) {
  FlightRecorder recorder(2);
  for (uint32_t id = 0; id < kMaxGroups; ++id) recorder.add_group(id, 1, "g");
  recorder.add_group(3, 0b11, "thirty bytes and then an umlaut\xc3\xa4");  // known: no new place
  EXPECT_EQ(recorder.snapshot().groups[3].name, "thirty bytes and then an umlaut");
  recorder.add_group(3, 0b11, "thirty bytes and then an umla\xc3\xa4\xc3\xa4");
  EXPECT_EQ(recorder.snapshot().groups[3].name, "thirty bytes and then an umla\xc3\xa4");
  recorder.add_group(3, 0b11, "two\nlines");
  EXPECT_EQ(recorder.snapshot().groups[3].name, "two?lines");
  EXPECT_EQ(error_of([&] { recorder.add_group(1000, 1, "g"); }),
            "rank 2 belongs to more than 64 groups: split once, before the loop");
}

TEST(FlightRecorder, SaysWhatIsWrongWhenOperationsPileUp) {
  FlightRecorder recorder(3);
  std::vector<uint64_t> ids;
  for (uint64_t i = 0; i < kMaxPending; ++i)
    ids.push_back(recorder.posted(message(OpKind::kSend, 1, 0, i)));
  EXPECT_EQ(error_of([&] { recorder.posted(message(OpKind::kSend, 1, 0, kMaxPending)); }),
            "more than 1,024 operations are pending on rank 3: is something posted and never "
            "waited for?");
  recorder.done(ids[500]);
  recorder.posted(message(OpKind::kSend, 1, 0, kMaxPending));
  const RankSnapshot snapshot = recorder.snapshot();
  ASSERT_EQ(snapshot.pending.size(), kMaxPending);
  for (size_t i = 1; i < snapshot.pending.size(); ++i)
    ASSERT_LT(snapshot.pending[i - 1].id, snapshot.pending[i].id);
}

TEST(FlightRecorder, TheOldestLeaveTheHistory) {
  FlightRecorder recorder(0);
  const uint64_t count = FlightRecorder::kHistory + 100;
  for (uint64_t i = 0; i < count; ++i) whole(recorder, message(OpKind::kSend, 1, 0, i));
  const std::vector<OpRecord> history = recorder.history();
  ASSERT_EQ(history.size(), FlightRecorder::kHistory);
  for (size_t i = 0; i < history.size(); ++i) ASSERT_EQ(history[i].sequence, 100 + i);
  EXPECT_EQ(recorder.snapshot().traffic[0].operations, count);
}

TEST(FlightRecorder, RecentKeepsTheNewestOfEachStream) {
  FlightRecorder recorder(0);
  whole(recorder, message(OpKind::kSend, 1, 0, 0));
  for (uint64_t i = 0; i < 1000; ++i) whole(recorder, message(OpKind::kRecv, 2, 5, i));
  const uint64_t early = recorder.posted(message(OpKind::kRecv, 3, 5, 0));
  whole(recorder, message(OpKind::kRecv, 3, 5, 1));
  recorder.done(early);  // waited for out of order
  const std::vector<OpRecord> recent = recorder.snapshot().recent;
  ASSERT_EQ(recent.size(), 3u);
  EXPECT_EQ(recent[0].peer, 3);
  EXPECT_EQ(recent[0].sequence, 1u);
  EXPECT_EQ(recent[1].peer, 2);
  EXPECT_EQ(recent[1].sequence, 999u);
  EXPECT_EQ(recent[2].peer, 1);
}

TEST(FlightRecorder, RecentForgetsTheStreamThatRestedLongest) {
  int64_t now = 0;
  FlightRecorder recorder(0, [&] { return ++now; });
  const int streams = static_cast<int>(kMaxRecent);
  for (int tag = 0; tag < streams; ++tag) whole(recorder, message(OpKind::kSend, 1, tag, 0));
  whole(recorder, message(OpKind::kSend, 1, 0, 1));
  whole(recorder, message(OpKind::kSend, 1, streams, 0));
  const std::vector<OpRecord> recent = recorder.snapshot().recent;
  ASSERT_EQ(recent.size(), kMaxRecent);
  EXPECT_EQ(recent[0].tag, streams);
  EXPECT_EQ(recent[1].tag, 0);
  EXPECT_EQ(recent[1].sequence, 1u);
  for (const OpRecord& op : recent) EXPECT_NE(op.tag, 1);
}

TEST(FlightRecorder, SeveralThreadsWriteAndReadAtOnce) {
  constexpr int kThreads = 3;
  constexpr uint64_t kEach = 2000;
  FlightRecorder recorder(0);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t)
    threads.emplace_back([&recorder, t] {
      for (uint64_t i = 0; i < kEach; ++i) {
        whole(recorder, message(OpKind::kSend, 1, t, i));
        if (i % 100 == 0) (void)recorder.snapshot();
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(recorder.history().size(), kThreads * kEach);
  EXPECT_EQ(recorder.snapshot().traffic[0].operations, kThreads * kEach);
  EXPECT_TRUE(recorder.snapshot().pending.empty());
}

TEST(FlightRecorder, RefusesRanksThatThereCannotBe) {
  EXPECT_THROW(FlightRecorder{kMaxWorldSize}, Error);
  EXPECT_THROW(FlightRecorder{-1}, Error);
}

}  // namespace
}  // namespace lab::flight_recorder_test
