// Diagnoses, word by word; and what must not be taken for one.
#include "common/comm/diagnosis/diagnosis.h"

#include <gtest/gtest.h>

#include <sstream>
#include <string>
#include <vector>

#include "tests/unit/recorded_ranks.h"

namespace lab::diagnosis_test {
namespace {

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

TEST(Diagnosis, OfALargeJobItTellsTheCauseAndAFew) {
  Ranks ranks(20);
  for (int rank = 0; rank < 18; ++rank) ranks.wait(rank, recv(rank == 0 ? 18 : rank - 1));
  ranks.wait(18, send(19));
  ranks.wait(19, send(18));
  const auto diagnosis = ranks.diagnose_twice();
  ASSERT_TRUE(diagnosis);
  std::vector<std::string> told;
  std::istringstream lines(diagnosis->details);
  for (std::string line; std::getline(lines, line);) told.push_back(line.substr(0, 15));
  const std::vector<std::string> expected = {
      "rank 0 waits in", "rank 1 waits in", "rank 2 waits in", "rank 3 waits in",
      "rank 4 waits in", "rank 5 waits in", "rank 18 waits i", "rank 19 waits i",
      "12 other ranks ", "circle: rank 18", "blocking sends "};
  EXPECT_EQ(told, expected);
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

TEST(Diagnosis, ARankThatReturnedEarlyIsInALaterCall) {
  Ranks ranks(2);
  ranks.wait(0, collective(OpKind::kAllReduce, 3, 4096));
  ranks.wait(1, collective(OpKind::kBarrier, 3));
  const auto diagnosis = ranks.diagnose_twice();
  ASSERT_TRUE(diagnosis);
  EXPECT_TRUE(
      diagnosis->details.ends_with("a rank that has returned early is in a later call already, "
                                   "perhaps one of the program's own"))
      << diagnosis->details;
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
            "rank 2 has not been heard from for 5 s while rank 0 waited for it in all_reduce #41");
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

TEST(Diagnosis, AMessageMayBePostedWithAnotherTag) {
  Ranks ranks(3);
  for (int r = 0; r < 3; ++r) ranks[r].posted(send((r + 1) % 3, 10 + r));
  for (int r = 0; r < 3; ++r) ranks.wait(r, recv((r + 2) % 3));
  const auto diagnosis = ranks.diagnose_twice();
  ASSERT_TRUE(diagnosis);
  EXPECT_EQ(
      diagnosis->text(),
      "deadlock: ranks 0, 1 and 2 wait in recv for each other in a circle\n"
      "  rank 0 waits in recv(from 2, tag 0, 1,024 bytes) for 1.2 s: rank 2 has not posted "
      "the send, but send(tag 12)\n"
      "  rank 1 waits in recv(from 0, tag 0, 1,024 bytes) for 1.2 s: rank 0 has not posted "
      "the send, but send(tag 10)\n"
      "  rank 2 waits in recv(from 1, tag 0, 1,024 bytes) for 1.2 s: rank 1 has not posted "
      "the send, but send(tag 11)\n"
      "  circle: rank 0 -> rank 2 -> rank 1 -> rank 0\n"
      "  sends are posted, but not those that are waited for: check to which rank, with which "
      "tag and in which group each one goes");
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

}  // namespace
}  // namespace lab::diagnosis_test
