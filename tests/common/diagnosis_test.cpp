// Diagnoses, word by word; and what must not be taken for one.
#include "common/comm/diagnosis.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "common/comm/flight_recorder.h"

namespace lab {
namespace {

constexpr int64_t kMs = 1'000'000;

/// Ranks with recorders of their own, looked at whenever a test likes.
class Ranks {
 public:
  explicit Ranks(int size) : fates_(static_cast<size_t>(size)), status_(fates_.size()) {
    for (int rank = 0; rank < size; ++rank) {
      recorders_.push_back(std::make_unique<FlightRecorder>(rank, "", [this] { return now_; }));
      recorders_.back()->add_group(0, (uint64_t{1} << size) - 1, "world");
      fates_[static_cast<size_t>(rank)] = RankFate::kRunning;
    }
  }

  FlightRecorder& operator[](int rank) { return *recorders_[static_cast<size_t>(rank)]; }

  uint64_t wait(int rank, const OpRecord& op) {
    const uint64_t id = (*this)[rank].posted(op);
    (*this)[rank].waiting(id);
    return id;
  }
  void whole(int rank, const OpRecord& op) { (*this)[rank].done(wait(rank, op)); }
  void set_fate(int rank, RankFate fate, int status = 0) {
    fates_[static_cast<size_t>(rank)] = fate;
    status_[static_cast<size_t>(rank)] = status;
  }
  void pass(int64_t ns) { now_ += ns; }

  std::vector<RankSnapshot> look() const {
    std::vector<RankSnapshot> all;
    for (size_t rank = 0; rank < recorders_.size(); ++rank) {
      all.push_back(recorders_[rank]->snapshot());
      all.back().pid = 100 + static_cast<int64_t>(rank);
      all.back().fate = fates_[rank];
      all.back().status = status_[rank];
    }
    return all;
  }
  /// Looks twice, 1.2 s apart.
  std::optional<Diagnosis> diagnose_twice() {
    const std::vector<RankSnapshot> before = look();
    pass(1200 * kMs);
    return diagnose(before, look());
  }
  /// "nothing", or what was found.
  std::string found() {
    const auto diagnosis = diagnose_twice();
    return diagnosis ? diagnosis->headline : "nothing";
  }

 private:
  int64_t now_ = 1000 * kMs;
  std::vector<std::unique_ptr<FlightRecorder>> recorders_;
  std::vector<RankFate> fates_;
  std::vector<int> status_;
};

OpRecord send(int to, int tag = 0, uint64_t bytes = 1024, uint64_t sequence = 0) {
  return {.kind = OpKind::kSend, .peer = to, .tag = tag, .bytes = bytes, .sequence = sequence};
}
OpRecord recv(int from, int tag = 0, uint64_t bytes = 1024, uint64_t sequence = 0) {
  return {.kind = OpKind::kRecv, .peer = from, .tag = tag, .bytes = bytes, .sequence = sequence};
}
OpRecord collective(OpKind kind, uint64_t sequence, uint64_t bytes = 0, int root = -1) {
  return {.kind = kind, .peer = root, .bytes = bytes, .sequence = sequence};
}

TEST(Describe, NamesWhatMatters) {
  RankSnapshot rank;
  rank.groups.push_back({.id = 7, .members = 3, .collectives = 0, .name = "pipeline 1"});
  OpRecord op = recv(1, 3);
  EXPECT_EQ(describe(op, rank), "recv(from 1, tag 3, 1,024 bytes)");
  op.microbatch = 2;
  EXPECT_EQ(describe(op, rank), "recv(from 1, tag 3, 1,024 bytes, microbatch 2)");
  op = send(0, 1, 1'234'567);
  op.group = 7;
  EXPECT_EQ(describe(op, rank), "send(to 0, tag 1, 1,234,567 bytes) in pipeline 1");
  EXPECT_EQ(describe(collective(OpKind::kAllReduce, 41, 4096), rank),
            "all_reduce #41 (4,096 bytes)");
  EXPECT_EQ(describe(collective(OpKind::kBroadcast, 2, 512, 1), rank),
            "broadcast #2 (512 bytes, root 1)");
  EXPECT_EQ(describe(collective(OpKind::kBarrier, 5), rank), "barrier #5");
  op = collective(OpKind::kBarrier, 5);
  op.group = 255;
  EXPECT_EQ(describe(op, rank), "barrier #5 in group 000000ff");
  EXPECT_EQ(describe({.kind = OpKind::kForward, .microbatch = 1}, rank), "forward(microbatch 1)");
}

TEST(Diagnosis, TwoSendsTheWholeText) {
  Ranks ranks(3);
  OpRecord op = send(2, 1, 884736);
  op.microbatch = 0;
  ranks.wait(1, op);
  ranks.wait(2, send(1));
  const auto diagnosis = ranks.diagnose_twice();
  ASSERT_TRUE(diagnosis);
  EXPECT_EQ(diagnosis->kind, Diagnosis::Kind::kDeadlock);
  EXPECT_EQ(diagnosis->ranks, (std::vector<int>{1, 2}));
  EXPECT_EQ(
      diagnosis->text(),
      "deadlock: rank 1 and rank 2 both wait in send for each other\n"
      "  rank 1 waits in send(to 2, tag 1, 884,736 bytes, microbatch 0) for 1.2 s: rank 2 has "
      "not posted the recv\n"
      "  rank 2 waits in send(to 1, tag 0, 1,024 bytes) for 1.2 s: rank 1 has not posted the "
      "recv\n"
      "  circle: rank 1 -> rank 2 -> rank 1\n"
      "  blocking sends wait for the matching recv: let one side receive first, or post with "
      "isend/irecv and wait afterwards");
}

TEST(Diagnosis, CirclesAreNamed) {
  Ranks both(2);
  both.wait(0, recv(1));
  both.wait(1, recv(0));
  EXPECT_EQ(both.found(), "deadlock: rank 0 and rank 1 both wait in recv for each other");

  Ranks mixed(2);
  mixed.wait(0, collective(OpKind::kAllReduce, 1, 4096));
  mixed.wait(1, recv(0, 4));
  EXPECT_EQ(mixed.found(),
            "deadlock: rank 0 waits for rank 1 in all_reduce #1, rank 1 for rank 0 in recv(tag 4)");

  Ranks ring(4);
  for (int rank = 0; rank < 4; ++rank) ring.wait(rank, send((rank + 1) % 4));
  const auto diagnosis = ring.diagnose_twice();
  ASSERT_TRUE(diagnosis);
  EXPECT_EQ(diagnosis->headline,
            "deadlock: ranks 0, 1, 2 and 3 wait in send for each other in a circle");
  EXPECT_NE(diagnosis->details.find("circle: rank 0 -> rank 1 -> rank 2 -> rank 3 -> rank 0\n"),
            std::string::npos);
}

TEST(Diagnosis, ReportsTheShortestCircle) {
  Ranks ranks(6);
  for (int rank = 0; rank < 3; ++rank) ranks.wait(rank, send((rank + 1) % 3));
  ranks.wait(3, recv(0));  // waits for the circle, is not part of it
  ranks.wait(4, send(5));
  ranks.wait(5, send(4));
  const auto diagnosis = ranks.diagnose_twice();
  ASSERT_TRUE(diagnosis);
  EXPECT_EQ(diagnosis->ranks, (std::vector<int>{4, 5}));
}

TEST(Diagnosis, ACollectiveWaitsForEveryMember) {
  Ranks ranks(3);
  ranks.wait(0, collective(OpKind::kBarrier, 1));
  ranks.wait(1, collective(OpKind::kBarrier, 1));
  EXPECT_EQ(ranks.found(), "nothing") << "rank 2 computes";
  ranks.wait(2, recv(1));
  const auto diagnosis = ranks.diagnose_twice();
  ASSERT_TRUE(diagnosis);
  EXPECT_EQ(diagnosis->headline,
            "deadlock: rank 1 waits for rank 2 in barrier #1, rank 2 for rank 1 in recv(tag 0)");
  EXPECT_NE(
      diagnosis->details.find("rank 0 waits in barrier #1 for 2.4 s: rank 2 has not entered it"),
      std::string::npos)
      << diagnosis->details;
}

TEST(Diagnosis, CollectivesOfDifferentGroupsCanFormACircle) {
  Ranks ranks(2);
  for (int rank = 0; rank < 2; ++rank) {
    ranks[rank].add_group(7, 0b11, "pipeline 0");
    ranks[rank].add_group(8, 0b11, "data 0");
  }
  OpRecord op = collective(OpKind::kAllReduce, 1, 16);
  op.group = 7;
  ranks.wait(0, op);
  op.group = 8;
  ranks.wait(1, op);
  EXPECT_EQ(
      ranks.found(),
      "deadlock: rank 0 waits for rank 1 in all_reduce #1 in pipeline 0, rank 1 for rank 0 in "
      "all_reduce #1 in data 0");
}

TEST(Diagnosis, Mismatches) {
  Ranks size(2);
  size.wait(1, recv(0, 0, 512));
  size[0].posted(send(1, 0, 1024));
  const auto diagnosis = size.diagnose_twice();
  ASSERT_TRUE(diagnosis);
  EXPECT_EQ(diagnosis->kind, Diagnosis::Kind::kMismatch);
  EXPECT_EQ(diagnosis->ranks, (std::vector<int>{0, 1}));
  EXPECT_EQ(
      diagnosis->text(),
      "size mismatch: rank 0 sends 1,024 bytes, rank 1 expects 512 (tag 0)\n"
      "  rank 1 waits in recv(from 0, tag 0, 512 bytes) for 1.2 s: rank 0 has posted the send "
      "with 1,024 bytes\n"
      "  the tensors of both sides must have the same number of elements");

  Ranks tag(2);
  tag.wait(0, send(1, 3));
  tag.wait(1, recv(0, 4));
  EXPECT_EQ(tag.found(), "tag mismatch: rank 0 sends with tag 3, rank 1 receives with tag 4");

  Ranks group(2);
  group[1].add_group(7, 0b11, "pipeline 0");
  group.wait(0, recv(1));
  OpRecord op = send(0);
  op.group = 7;
  group.wait(1, op);
  EXPECT_EQ(group.found(),
            "group mismatch: rank 1 sends in pipeline 0, rank 0 receives in the world");
}

/// The headline for two ranks in collective #3.
std::string headline_of(const OpRecord& a, const OpRecord& b) {
  Ranks ranks(2);
  ranks.wait(0, a);
  ranks.wait(1, b);
  return ranks.found();
}

TEST(Diagnosis, MismatchedCollectives) {
  const OpRecord sum = collective(OpKind::kAllReduce, 3, 4096);
  EXPECT_EQ(headline_of(sum, sum), "nothing");
  EXPECT_EQ(headline_of(sum, collective(OpKind::kBroadcast, 3, 512, 0)),
            "collective #3 of the world: rank 0 calls all_reduce (4,096 bytes), rank 1 calls "
            "broadcast (512 bytes)");
  EXPECT_EQ(
      headline_of(collective(OpKind::kBarrier, 3), sum),
      "collective #3 of the world: rank 0 calls barrier, rank 1 calls all_reduce (4,096 bytes)");
  EXPECT_EQ(headline_of(sum, collective(OpKind::kAllReduce, 3, 512)),
            "collective #3 of the world: rank 0 calls all_reduce (4,096 bytes), rank 1 calls "
            "all_reduce (512 bytes)");
  EXPECT_EQ(
      headline_of(collective(OpKind::kReduce, 3, 8, 0), collective(OpKind::kReduce, 3, 8, 1)),
      "collective #3 of the world: rank 0 calls reduce (8 bytes, root 0), rank 1 calls reduce "
      "(8 bytes, root 1)");
  OpRecord maximum = sum;
  maximum.tag = 2;
  EXPECT_EQ(headline_of(sum, maximum),
            "collective #3 of the world: rank 0 calls all_reduce (4,096 bytes, sum), rank 1 calls "
            "all_reduce (4,096 bytes, max)");
}

/// Rank 0 waits in all_reduce #41, the others have not entered it.
std::string headline_with(RankFate fate, int status, bool left = false) {
  Ranks ranks(3);
  ranks.wait(0, collective(OpKind::kAllReduce, 41, 16));
  ranks.set_fate(2, fate, status);
  if (left) ranks[2].leave();
  return ranks.found();
}

TEST(Diagnosis, RanksThatAreGone) {
  EXPECT_EQ(headline_with(RankFate::kExited, 0),
            "rank 2 exited with code 0 while rank 0 waited for it in all_reduce #41");
  EXPECT_EQ(headline_with(RankFate::kExited, -1),
            "rank 2 has ended while rank 0 waited for it in all_reduce #41");
  EXPECT_EQ(headline_with(RankFate::kKilled, 9),
            "rank 2 was killed (signal 9: SIGKILL) while rank 0 waited for it in all_reduce #41");
  EXPECT_EQ(headline_with(RankFate::kStopped, 19),
            "rank 2 is stopped (SIGSTOP or Ctrl-Z) while rank 0 waited for it in "
            "all_reduce #41");
  EXPECT_EQ(headline_with(RankFate::kSilent, 5),
            "rank 2 has not been heard of for 5 s while rank 0 waited for it in all_reduce #41");
  EXPECT_EQ(headline_with(RankFate::kRunning, 0, true),
            "rank 2 has left the job while rank 0 waited for it in all_reduce #41");
  EXPECT_EQ(headline_with(RankFate::kRunning, 0), "nothing");
  EXPECT_EQ(headline_with(RankFate::kUnknown, 0), "nothing");
}

TEST(Diagnosis, NamesWhoWaitsForTheDeadItself) {
  Ranks ranks(3);
  ranks.wait(0, recv(1));
  ranks.wait(1, recv(2, 6));
  ranks.set_fate(2, RankFate::kKilled, 9);
  const auto diagnosis = ranks.diagnose_twice();
  ASSERT_TRUE(diagnosis);
  EXPECT_EQ(diagnosis->kind, Diagnosis::Kind::kRankEnded);
  EXPECT_EQ(diagnosis->ranks, (std::vector<int>{2}));
  EXPECT_EQ(diagnosis->text(),
            "rank 2 was killed (signal 9: SIGKILL) while rank 1 waited for it in recv(tag 6)\n"
            "  rank 0 waits in recv(from 1, tag 0, 1,024 bytes) for 1.2 s: rank 1 has not posted "
            "the send\n"
            "  rank 1 waits in recv(from 2, tag 6, 1,024 bytes) for 1.2 s: rank 2 has not posted "
            "the send; rank 2 was killed (signal 9: SIGKILL)\n"
            "  SIGKILL comes from a person, or from a system that ran out of memory (see dmesg)");
}

TEST(Diagnosis, TheCauseComesFirst) {
  Ranks ranks(4);
  ranks.wait(0, send(3));
  ranks.wait(3, send(0));
  ranks.wait(1, recv(2));
  ranks.set_fate(2, RankFate::kStopped);
  EXPECT_EQ(ranks.found(), "deadlock: rank 0 and rank 3 both wait in send for each other");
  ranks.set_fate(2, RankFate::kExited, 1);
  EXPECT_EQ(ranks.found(), "rank 2 exited with code 1 while rank 1 waited for it in recv(tag 0)");

  Ranks many(4);
  many.wait(3, collective(OpKind::kBarrier, 1));
  many.set_fate(0, RankFate::kExited, 0);
  many.set_fate(1, RankFate::kExited, 3);
  many.set_fate(2, RankFate::kKilled, 11);
  EXPECT_EQ(many.found(),
            "rank 2 was killed (signal 11: SIGSEGV) while rank 3 waited for it in barrier #1");
}

TEST(Diagnosis, PostedIsNotEnoughForTheDeadButDoneIs) {
  Ranks ranks(2);
  ranks.wait(0, recv(1));
  const uint64_t id = ranks.wait(1, send(0));
  ranks.set_fate(1, RankFate::kKilled, 15);
  EXPECT_EQ(ranks.found(),
            "rank 1 was killed (signal 15: SIGTERM) while rank 0 waited for it in recv(tag 0)");
  ranks[1].done(id);
  EXPECT_EQ(ranks.found(), "nothing");

  Ranks barrier(2);
  barrier.wait(0, collective(OpKind::kBarrier, 1));
  barrier.whole(1, collective(OpKind::kBarrier, 1));
  barrier[1].leave();
  barrier.set_fate(1, RankFate::kExited, 0);
  EXPECT_EQ(barrier.found(), "nothing");
}

TEST(Diagnosis, WhatIsPostedDoesNotBlock) {
  Ranks ranks(2);
  ranks[0].posted(recv(1));  // not waited for
  ranks[1].posted(recv(0));
  ranks.wait(0, send(1));
  ranks.wait(1, send(0));
  EXPECT_EQ(ranks.found(), "nothing") << "large messages take their time";
}

TEST(Diagnosis, WhatWasDoneLongAgoDoesNotBlock) {
  Ranks ranks(2);
  ranks.wait(0, recv(1, 9));  // rank 1 has sent it, then many others
  ranks.whole(1, send(0, 9));
  for (uint64_t i = 0; i < 1000; ++i) ranks.whole(1, send(0, 2, 8, i));
  ranks.wait(1, recv(0, 5));
  EXPECT_EQ(ranks.found(), "nothing") << "rank 0 will wake up";
}

TEST(Diagnosis, AnEntryBetweenTheLooksAcquits) {
  Ranks ranks(2);
  ranks.wait(0, send(1));
  ranks.wait(1, send(0));
  const auto before = ranks.look();
  ranks[1].set_microbatch(3);  // no entry
  EXPECT_TRUE(diagnose(before, ranks.look()));
  ranks[1].posted(recv(0, 8));
  EXPECT_FALSE(diagnose(before, ranks.look()));

  Ranks sizes(2);
  sizes.wait(0, recv(1, 0, 4));
  sizes[1].posted(send(0, 0, 8));
  const auto earlier = sizes.look();
  sizes[1].posted({.kind = OpKind::kForward});
  EXPECT_FALSE(diagnose(earlier, sizes.look()));
  EXPECT_TRUE(diagnose(sizes.look(), sizes.look()));
}

TEST(Diagnosis, GoneMeansGoneInBothLooks) {
  Ranks ranks(2);
  ranks.wait(0, recv(1));
  const auto before = ranks.look();
  ranks.set_fate(1, RankFate::kStopped);
  EXPECT_FALSE(diagnose(before, ranks.look()));
  EXPECT_TRUE(diagnose(ranks.look(), ranks.look()));
}

TEST(Judge, ReportsHalfASecondAfterTheFirstLook) {
  Ranks ranks(2);
  ranks.wait(0, send(1));
  ranks.wait(1, send(0));
  Judge judge;
  int64_t first_report = -1;
  for (int64_t ms = 0; ms <= 1000 && first_report < 0; ms += 100) {
    if (judge.look(ranks.look(), ms * kMs)) first_report = ms;
    ranks.pass(100 * kMs);
  }
  EXPECT_EQ(first_report, 500);
}

TEST(Judge, ReportsWithin1100MillisecondsWheneverItHappens) {
  for (int64_t moment = 0; moment < 1000; moment += 50) {
    Ranks ranks(2);
    Judge judge;
    int64_t report = -1;
    for (int64_t ms = 0; ms <= 4000 && report < 0; ms += 50) {
      if (ms == moment) {
        ranks.wait(0, send(1));
        ranks.wait(1, send(0));
      }
      if (judge.look(ranks.look(), ms * kMs)) report = ms;
      ranks.pass(50 * kMs);
    }
    EXPECT_GE(report - moment, 500);
    EXPECT_LE(report - moment, 1100);
  }
}

TEST(Judge, DoesNotBlameThoseWhoseSnapshotIsOld) {
  Ranks ranks(2);
  ranks.wait(0, send(1));
  ranks.wait(1, send(0));
  const RankSnapshot old = ranks.look()[0];
  Judge judge;
  for (int64_t ms = 0; ms <= 5000; ms += 100) {
    auto now = ranks.look();
    now[0] = old;  // its publisher has died; the rank may have gone on
    EXPECT_FALSE(judge.look(now, ms * kMs)) << ms;
    ranks.pass(100 * kMs);
  }
}

TEST(Judge, PublishersMayBeSlow) {
  Ranks ranks(2);
  ranks.wait(0, send(1));
  ranks.wait(1, send(0));
  Judge judge;
  std::vector<RankSnapshot> published = ranks.look();
  int64_t report = -1;
  for (int64_t ms = 0; ms <= 5000 && report < 0; ms += 100) {
    if (ms % 400 == 0) published = ranks.look();
    if (judge.look(published, ms * kMs)) report = ms;
    ranks.pass(100 * kMs);
  }
  EXPECT_GT(report, 0);
  EXPECT_LE(report, 1000);
}

TEST(Judge, EntriesOverALongTimeDoNotAddUp) {
  Ranks ranks(2);
  Judge judge;
  for (int64_t ms = 0; ms <= 6000; ms += 100) {
    ranks.pass(100 * kMs);
    const uint64_t a = ranks.wait(0, send(1));
    const uint64_t b = ranks.wait(1, send(0));
    EXPECT_FALSE(judge.look(ranks.look(), ms * kMs)) << ms;
    ranks[0].done(a);
    ranks[1].done(b);
  }
}

}  // namespace
}  // namespace lab
