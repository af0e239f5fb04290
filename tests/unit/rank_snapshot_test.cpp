// Snapshots as bytes: nothing is lost, everything else is refused.
#include "common/comm/diagnosis/rank_snapshot.h"

#include <gtest/gtest.h>

#include <random>
#include <string>

#include "common/error.h"

namespace lab::rank_snapshot_test {
namespace {

OpRecord random_op(std::mt19937_64& random) {
  const auto number = [&](uint64_t below) { return random() % below; };
  return {.id = number(1000) + 1,
          .kind = static_cast<OpKind>(number(kOpKinds)),
          .state = static_cast<OpState>(number(3)),
          .group = static_cast<uint32_t>(random()),
          .peer = static_cast<int32_t>(number(65)) - 1,
          .tag = static_cast<int32_t>(number(1 << 30)),
          .microbatch = static_cast<int32_t>(number(9)) - 1,
          .bytes = random(),
          .sequence = random(),
          .posted_ns = static_cast<int64_t>(random() >> 1),
          .started_ns = static_cast<int64_t>(random() >> 1),
          .finished_ns = static_cast<int64_t>(random() >> 1),
          .waiting_ns = static_cast<int64_t>(random() >> 1),
          .done_ns = static_cast<int64_t>(random() >> 1)};
}

RankSnapshot random_snapshot(uint64_t seed, size_t pending, size_t recent, size_t groups) {
  std::mt19937_64 random(seed);
  RankSnapshot snapshot;
  snapshot.rank = 3;
  snapshot.pid = 4711;
  snapshot.fate = RankFate::kKilled;
  snapshot.status = 9;
  snapshot.left = true;
  snapshot.epoch = random();
  snapshot.taken_ns = 17;
  for (size_t i = 0; i < pending; ++i) snapshot.pending.push_back(random_op(random));
  for (size_t i = 0; i < recent; ++i) snapshot.recent.push_back(random_op(random));
  for (size_t i = 0; i < groups; ++i)
    snapshot.groups.push_back({.id = static_cast<uint32_t>(i),
                               .members = random(),
                               .collectives = random(),
                               .name = std::string(i % (kMaxGroupName + 1), 'g')});
  for (Traffic& traffic : snapshot.traffic) traffic = {random(), random()};
  return snapshot;
}

void expect_equal(const OpRecord& a, const OpRecord& b) {
  EXPECT_EQ(a.id, b.id);
  EXPECT_EQ(a.kind, b.kind);
  EXPECT_EQ(a.state, b.state);
  EXPECT_EQ(a.group, b.group);
  EXPECT_EQ(a.peer, b.peer);
  EXPECT_EQ(a.tag, b.tag);
  EXPECT_EQ(a.microbatch, b.microbatch);
  EXPECT_EQ(a.bytes, b.bytes);
  EXPECT_EQ(a.sequence, b.sequence);
  EXPECT_EQ(a.posted_ns, b.posted_ns);
  EXPECT_EQ(a.started_ns, b.started_ns);
  EXPECT_EQ(a.finished_ns, b.finished_ns);
  EXPECT_EQ(a.waiting_ns, b.waiting_ns);
  EXPECT_EQ(a.done_ns, b.done_ns);
}

TEST(RankSnapshot, ComesBackWhole) {
  const RankSnapshot a = random_snapshot(1, 5, 7, 3);
  const RankSnapshot b = decode_snapshot(encode_snapshot(a));
  EXPECT_EQ(a.rank, b.rank);
  EXPECT_EQ(a.pid, b.pid);
  EXPECT_EQ(a.fate, b.fate);
  EXPECT_EQ(a.status, b.status);
  EXPECT_EQ(a.left, b.left);
  EXPECT_EQ(a.epoch, b.epoch);
  EXPECT_EQ(a.taken_ns, b.taken_ns);
  ASSERT_EQ(a.pending.size(), b.pending.size());
  ASSERT_EQ(a.recent.size(), b.recent.size());
  ASSERT_EQ(a.groups.size(), b.groups.size());
  for (size_t i = 0; i < a.pending.size(); ++i) expect_equal(a.pending[i], b.pending[i]);
  for (size_t i = 0; i < a.recent.size(); ++i) expect_equal(a.recent[i], b.recent[i]);
  for (size_t i = 0; i < a.groups.size(); ++i) {
    EXPECT_EQ(a.groups[i].id, b.groups[i].id);
    EXPECT_EQ(a.groups[i].members, b.groups[i].members);
    EXPECT_EQ(a.groups[i].collectives, b.groups[i].collectives);
    EXPECT_EQ(a.groups[i].name, b.groups[i].name);
  }
  for (size_t i = 0; i < kOpKinds; ++i) {
    EXPECT_EQ(a.traffic[i].operations, b.traffic[i].operations);
    EXPECT_EQ(a.traffic[i].bytes, b.traffic[i].bytes);
  }
}

TEST(RankSnapshot, TheLargestFitsItsLimit) {
  const RankSnapshot largest = random_snapshot(2, kMaxPending, kMaxRecent, kMaxGroups);
  const std::string bytes = encode_snapshot(largest);
  EXPECT_LE(bytes.size(), kMaxSnapshotBytes);
  EXPECT_EQ(decode_snapshot(bytes).pending.size(), kMaxPending);
  EXPECT_THROW(encode_snapshot(random_snapshot(3, kMaxPending + 1, 0, 0)), Error);
  EXPECT_THROW(encode_snapshot(random_snapshot(3, 0, kMaxRecent + 1, 0)), Error);
}

TEST(RankSnapshot, RefusesWhatIsCutShortOrTooLong) {
  const std::string bytes = encode_snapshot(random_snapshot(4, 2, 2, 2));
  for (size_t length = 0; length < bytes.size(); ++length)
    EXPECT_THROW(decode_snapshot(bytes.substr(0, length)), Error) << length;
  EXPECT_THROW(decode_snapshot(bytes + '\0'), Error);
  EXPECT_THROW(decode_snapshot(std::string(kMaxSnapshotBytes + 1, 'x')), Error);
}

TEST(RankSnapshot, DamageNeverGivesWhatASnapshotCannotHold) {
  const std::string bytes = encode_snapshot(random_snapshot(5, 3, 3, 3));
  std::mt19937_64 random(6);
  int refused = 0;
  for (int i = 0; i < 3000; ++i) {
    std::string damaged = bytes;
    for (uint64_t n = random() % 4 + 1; n > 0; --n)
      damaged[random() % damaged.size()] = static_cast<char>(random());
    try {
      const RankSnapshot snapshot = decode_snapshot(damaged);
      ASSERT_TRUE(snapshot.rank >= 0 && snapshot.rank < kMaxWorldSize);
      for (const OpRecord& op : snapshot.pending) ASSERT_FALSE(op_name(op.kind).empty());
    } catch (const Error&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 100);
}

TEST(RankSnapshot, RefusesControlCharactersInNames) {
  RankSnapshot snapshot;
  snapshot.groups.push_back({.id = 0, .members = 1, .collectives = 0, .name = "a\x1b[31m"});
  EXPECT_THROW(encode_snapshot(snapshot), Error);
}

TEST(RankSnapshot, StandsStillForTheWaitThatBeganLast) {
  RankSnapshot snapshot;
  EXPECT_EQ(snapshot.waiting(), nullptr);
  snapshot.pending.push_back({.id = 1, .state = OpState::kWaiting, .waiting_ns = 20});
  snapshot.pending.push_back({.id = 2, .state = OpState::kWaiting, .waiting_ns = 10});
  snapshot.pending.push_back({.id = 3, .state = OpState::kPosted, .waiting_ns = 0});
  ASSERT_NE(snapshot.waiting(), nullptr);
  EXPECT_EQ(snapshot.waiting()->id, 1u);
}

TEST(OpKind, NamesAreThoseOfTheVerbs) {
  EXPECT_EQ(op_name(OpKind::kSend), "send");
  EXPECT_EQ(op_name(OpKind::kAllReduce), "all_reduce");
  EXPECT_EQ(op_name(OpKind::kSplit), "split");
  EXPECT_EQ(op_name(OpKind::kBackward), "backward");
}

}  // namespace
}  // namespace lab::rank_snapshot_test
