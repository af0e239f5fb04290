// Tests of common/data/sampler.h: every sequence once per epoch, in a reproducible order.
#include "common/data/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>
#include <vector>

#include "common/error.h"

namespace lab::sampler_test {
namespace {

using Indices = std::vector<int64_t>;

Indices sorted(Indices values) {
  std::sort(values.begin(), values.end());
  return values;
}

Indices all(int64_t count) {
  Indices values(static_cast<size_t>(count));
  std::iota(values.begin(), values.end(), 0);
  return values;
}

/// Every `size`-th of the order, from `rank`.
Shard every(size_t rank, size_t size) {
  return [rank, size](std::span<const int64_t> order) {
    Indices share;
    for (size_t i = rank; i < order.size(); i += size) share.push_back(order[i]);
    return share;
  };
}

TEST(EpochOrderTest, HoldsEverythingOnce) {
  for (const int64_t count : {0, 1, 2, 3, 1000})
    EXPECT_EQ(sorted(epoch_order(count, 7, 0)), all(count)) << count;
}

TEST(EpochOrderTest, DependsOnSeedAndEpoch) {
  const Indices order = epoch_order(100, 7, 3);
  EXPECT_EQ(order, epoch_order(100, 7, 3));
  EXPECT_NE(order, epoch_order(100, 8, 3));
  EXPECT_NE(order, epoch_order(100, 7, 4));
  EXPECT_NE(epoch_order(100, 7, 8), epoch_order(100, 8, 7)) << "seed + epoch is not a good mix";
  EXPECT_NE(order, all(100));
}

TEST(EpochOrderTest, IsTheSameOnEveryMachine) {
  // What this implementation gave when it was written: a checkpoint must go on in the same order
  // with another compiler or standard library.
  EXPECT_EQ(epoch_order(10, 1337, 0), (Indices{0, 1, 3, 9, 6, 5, 8, 4, 7, 2}));
  EXPECT_EQ(epoch_order(10, 1337, 1), (Indices{5, 3, 1, 2, 7, 8, 6, 4, 9, 0}));
}

TEST(EpochOrderTest, EveryOrderIsEquallyLikely) {
  std::array<int, 6> times{};
  constexpr int kRounds = 6000;
  for (int epoch = 0; epoch < kRounds; ++epoch) {
    const Indices order = epoch_order(3, 1, epoch);
    ++times[static_cast<size_t>(order[0] * 2 + (order[1] > order[2]))];
  }
  // 1000 each; the standard deviation is 29.
  for (const int count : times) EXPECT_NEAR(count, 1000, 150);
}

TEST(SamplerTest, ReadsEverySequenceOncePerEpoch) {
  Sampler sampler(10, 5);
  const Indices first = sampler.next(10);
  const Indices second = sampler.next(10);
  EXPECT_EQ(sorted(first), all(10));
  EXPECT_EQ(sorted(second), all(10));
  EXPECT_NE(first, second) << "each epoch has a new order";
  EXPECT_EQ(first, epoch_order(10, 5, 0));
  EXPECT_EQ(second, epoch_order(10, 5, 1));
}

TEST(SamplerTest, TheStreamDoesNotDependOnHowItIsAskedFor) {
  Sampler at_once(7, 5);
  Sampler in_parts(7, 5);
  const Indices expected = at_once.next(60);
  Indices parts;
  for (int64_t count = 0; parts.size() < 60; ++count)
    for (const int64_t index : in_parts.next(count)) parts.push_back(index);
  parts.resize(60);
  EXPECT_EQ(parts, expected);
}

TEST(SamplerTest, OneCallMaySpanSeveralEpochs) {
  Sampler sampler(2, 5);
  EXPECT_EQ(sampler.next(7).size(), 7U);
  EXPECT_EQ(sampler.state(), (SamplerState{3, 1}));
}

TEST(SamplerTest, ShardsShareTheOrder) {
  Indices both;
  for (const size_t rank : {0U, 1U}) {
    Sampler sampler(10, 5, every(rank, 2));
    for (const int64_t index : sampler.next(5)) both.push_back(index);
    EXPECT_EQ(sampler.state(), (SamplerState{0, 5}));
    sampler.next(1);
    EXPECT_EQ(sampler.state(), (SamplerState{1, 1}));
  }
  EXPECT_EQ(sorted(both), all(10));
}

TEST(SamplerTest, GoesOnWhereItsStateWasSaved) {
  for (const int64_t read : {0, 3, 5, 10, 12, 23}) {
    Sampler original(5, 9);
    original.next(read);
    Sampler restored(5, 9);
    restored.next(2);
    restored.restore(original.state());
    EXPECT_EQ(restored.state(), original.state());
    EXPECT_EQ(restored.next(13), original.next(13)) << "after " << read;
  }
}

TEST(SamplerTest, RefusesAStateOfOtherDataAndStaysAsItWas) {
  Sampler sampler(5, 9);
  sampler.next(7);
  const SamplerState before = sampler.state();
  for (const SamplerState& state :
       {SamplerState{0, 6}, SamplerState{3, 100}, SamplerState{0, -1}, SamplerState{-1, 0}}) {
    EXPECT_THROW(sampler.restore(state), Error);
    EXPECT_EQ(sampler.state(), before);
  }
  Sampler same(5, 9);
  same.next(7);
  EXPECT_EQ(sampler.next(20), same.next(20));
}

TEST(SamplerTest, RefusesNothingToRead) {
  EXPECT_THROW(Sampler(0, 1), Error);
  EXPECT_THROW(Sampler(-3, 1), Error);
  EXPECT_THROW(Sampler(2, 1, every(2, 3)), Error) << "three ranks, two sequences";
}

TEST(SamplerTest, RefusesAShardOfSequencesThatDoNotExist) {
  for (const int64_t index : {int64_t{-1}, int64_t{4}, std::numeric_limits<int64_t>::max()}) {
    const auto shard = [index](std::span<const int64_t>) { return Indices{0, index}; };
    EXPECT_THROW(Sampler(4, 1, shard), Error) << index;
  }
}

}  // namespace
}  // namespace lab::sampler_test
