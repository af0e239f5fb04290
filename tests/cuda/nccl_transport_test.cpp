// ProcessGroup over NCCL: what the verbs mean for tensors in GPU memory, and what breaks off.
#include "common/comm/nccl/nccl_transport.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "common/tensor/tensor.h"
#include "tests/common/error_of.h"
#include "tests/cuda/nccl_ranks.h"

namespace lab::test {
namespace {

using namespace std::chrono_literals;

class Nccl : public testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    if (const std::string reason = why_not_run(ranks()); !reason.empty()) GTEST_SKIP() << reason;
  }
  virtual int ranks() const { return GetParam(); }
  void run(const RankBody& body) const {
    EXPECT_EQ(run_ranks({.ranks = ranks()}, body), RankErrors(static_cast<size_t>(ranks())));
  }
};

INSTANTIATE_TEST_SUITE_P(Ranks, Nccl, testing::Values(2, 3, 6));

constexpr int64_t kCounts[] = {0, 1, 2, 5, 17, 1000, 70'001};

/// Small whole numbers, so that sums are exact in any order.
float number(int rank, int64_t i) { return static_cast<float>((rank + 1) * 7 + i % 13); }

Tensor numbers(int rank, int64_t count, Device device = Device::kCuda) {
  const Tensor tensor = Tensor::empty({count});
  for (int64_t i = 0; i < count; ++i) tensor.data()[i] = number(rank, i);
  return tensor.to(device);
}

float sum_of(int ranks, int64_t i) {
  float sum = 0;
  for (int r = 0; r < ranks; ++r) sum += number(r, i);
  return sum;
}

template <typename Right>
void expect_all(const Tensor& tensor, const Right& right, const std::string& what) {
  const Tensor values = tensor.to(Device::kCpu);
  for (int64_t i = 0; i < values.numel(); ++i)
    ASSERT_EQ(values.data()[i], right(i)) << what << ", element " << i << " of " << values.numel();
}

auto from(int rank) {
  return [rank](int64_t i) { return number(rank, i); };
}

TEST_P(Nccl, AllReduceCombinesOnEveryRank) {
  run([&](GpuRank& self) {
    for (const int64_t count : kCounts) {
      const Tensor sum = numbers(self.world.rank(), count);
      self.world.all_reduce(sum);
      expect_all(
          sum, [&](int64_t i) { return sum_of(ranks(), i); }, "sum");
      const Tensor largest = numbers(self.world.rank(), count);
      self.world.all_reduce(largest, ReduceOp::kMax);
      expect_all(largest, from(ranks() - 1), "max");
      const Tensor least = numbers(self.world.rank(), count);
      self.world.all_reduce(least, ReduceOp::kMin);
      expect_all(least, from(0), "min");
    }
  });
}

TEST_P(Nccl, BroadcastAndReduceUseTheRoot) {
  run([&](GpuRank& self) {
    for (const int root : {0, ranks() - 1})
      for (const int64_t count : {int64_t{5}, int64_t{70'001}}) {
        const Tensor copy = numbers(self.world.rank(), count);
        self.world.broadcast(copy, root);
        expect_all(copy, from(root), "broadcast");
        const Tensor sum = numbers(self.world.rank(), count);
        self.world.reduce(sum, root);
        if (self.world.rank() == root)
          expect_all(
              sum, [&](int64_t i) { return sum_of(ranks(), i); }, "reduce");
        else
          expect_all(sum, from(self.world.rank()), "reduce, not the root");
      }
  });
}

TEST_P(Nccl, GatherAndScatterGoByRank) {
  run([&](GpuRank& self) {
    const int rank = self.world.rank();
    for (const int64_t count : kCounts) {
      const Tensor all = Tensor::zeros({ranks(), count}, Device::kCuda);
      self.world.all_gather(all, numbers(rank, count));
      for (int r = 0; r < ranks(); ++r) expect_all(all.rows(r, r + 1), from(r), "all_gather");

      const Tensor parts = numbers(rank, ranks() * count);
      const Tensor part = Tensor::zeros({count}, Device::kCuda);
      self.world.reduce_scatter(part, parts);
      expect_all(
          part, [&](int64_t i) { return sum_of(ranks(), rank * count + i); }, "reduce_scatter");
      expect_all(parts, from(rank), "input");
    }
  });
}

TEST_P(Nccl, MessagesCrossInAnyOrder) {
  run([&](GpuRank& self) {
    ProcessGroup& world = self.world;
    for (const int64_t count : kCounts) {
      // Each pair sends three messages each way; some post their sends first, some their recvs.
      std::vector<Work> works;
      std::vector<std::pair<int, Tensor>> arrived;
      const auto send_all = [&](int peer) {
        for (int tag = 0; tag < 3; ++tag)
          works.push_back(world.isend(numbers(world.rank() + tag, count), peer, tag));
      };
      const auto recv_all = [&](int peer) {
        for (int tag = 0; tag < 3; ++tag) {
          arrived.emplace_back(peer + tag, Tensor::empty({count}, Device::kCuda));
          works.push_back(world.irecv(arrived.back().second, peer, tag));
        }
      };
      for (int peer = 0; peer < ranks(); ++peer) {
        if (peer == world.rank()) continue;
        const bool sends_first = (world.rank() + peer) % 3 != 0;
        if (sends_first) send_all(peer);
        recv_all(peer);
        if (!sends_first) send_all(peer);
      }
      // Waiting in another order than that of posting is fine.
      for (size_t i = works.size(); i-- > 0;) works[i].wait();
      for (const auto& [sent, tensor] : arrived) expect_all(tensor, from(sent), "message");
    }
  });
}

TEST_P(Nccl, SplitMakesGroupsOfTheirOwn) {
  run([&](GpuRank& self) {
    const int color = self.world.rank() % 2;
    ProcessGroup group = self.world.split(color, -self.world.rank());
    const Tensor sum = numbers(self.world.rank(), 1000);
    group.all_reduce(sum);
    expect_all(
        sum,
        [&](int64_t i) {
          float right = 0;
          for (int r = color; r < ranks(); r += 2) right += number(r, i);
          return right;
        },
        "sum of the group");
    if (group.size() > 1) {
      if (group.rank() == 0) group.send(numbers(1, 10), 1);
      if (group.rank() == 1) {
        const Tensor tensor = Tensor::empty({10}, Device::kCuda);
        group.recv(tensor, 0);
        expect_all(tensor, from(1), "message in the group");
      }
    }
    ProcessGroup inner = group.split(0, 0);
    inner.all_reduce(numbers(0, 3));
    self.world.all_reduce(numbers(0, 3));
  });
}

TEST_P(Nccl, TensorsOfTheCpuGoAnotherWay) {
  run([&](GpuRank& self) {
    ProcessGroup& world = self.world;
    const int right = (world.rank() + 1) % ranks();
    const int left = (world.rank() + ranks() - 1) % ranks();
    for (int round = 0; round < 3; ++round)
      for (const Device device : {Device::kCpu, Device::kCuda}) {
        const Tensor sum = numbers(world.rank(), 100, device);
        world.all_reduce(sum);
        expect_all(
            sum, [&](int64_t i) { return sum_of(ranks(), i); }, "sum");
        const Tensor arrived = Tensor::zeros({100}, device);
        Work send = world.isend(numbers(world.rank(), 100, device), right, 1);
        world.recv(arrived, left, 1);
        send.wait();
        expect_all(arrived, from(left), "message");
      }
  });
}

TEST_P(Nccl, BarrierLetsNobodyPassBeforeAll) {
  run([&](GpuRank& self) {
    for (uint32_t tag = 1; tag <= 3; ++tag) self.gpus.barrier({.tag = tag, .timeout = 20s});
    // A collective without numbers is one too.
    self.gpus.all_reduce({}, ReduceOp::kSum, {.tag = 4, .timeout = 20s});
  });
}

class NcclPair : public Nccl {
 protected:
  int ranks() const override { return 2; }
  /// With a short deadline.
  RankErrors run_hasty(const RankBody& body, std::chrono::milliseconds timeout = 300ms) const {
    return run_ranks({.ranks = 2, .timeout = timeout}, body);
  }
};
INSTANTIATE_TEST_SUITE_P(Ranks, NcclPair, testing::Values(2));

TEST_P(NcclPair, WhatWasAskedOfTheGpuBeforeIsSent) {
  run([&](GpuRank& self) {
    const Tensor tensor = Tensor::empty({100'000}, Device::kCuda);
    for (int round = 0; round < 5; ++round) {
      const auto value = static_cast<float>(round + 1);
      if (self.world.rank() == 0) {
        tensor.fill(value);  // nobody waits for it
        self.world.send(tensor, 1);
      } else {
        tensor.fill(-1);
        self.world.recv(tensor, 0);
        expect_all(
            tensor, [&](int64_t) { return value; }, "filled before the send");
      }
      tensor.fill(value * (self.world.rank() == 0 ? 1.0F : 2.0F));
      self.world.all_reduce(tensor);
      expect_all(
          tensor, [&](int64_t) { return 3 * value; }, "filled before the all_reduce");
    }
  });
}

TEST_P(NcclPair, AMessageThatNobodyWaitsForGoesOn) {
  run([&](GpuRank& self) {
    if (self.world.rank() == 0) {
      Work forgotten = self.world.isend(numbers(3, 100'000), 1);
      Work another = self.world.isend(numbers(4, 1), 1);
    } else {
      for (const auto& [rank, count] : {std::pair<int, int64_t>{3, 100'000}, {4, 1}}) {
        const Tensor arrived = Tensor::empty({count}, Device::kCuda);
        self.world.recv(arrived, 0);
        expect_all(arrived, from(rank), "forgotten");
      }
    }
    self.world.barrier();  // over Gloo: rank 0 sits here while its messages are not even connected
  });
}

TEST_P(NcclPair, SendWaitsForItsReceiver) {
  for (const int64_t count : {1, 70'001}) {
    const RankErrors errors = run_hasty(
        [&](GpuRank& self) {
          const int other = 1 - self.world.rank();
          // The connections exist: it is the message that waits.
          for (const int first : {0, 1}) {
            if (self.world.rank() == first) self.world.send(numbers(0, 1), other);
            if (self.world.rank() != first)
              self.world.recv(Tensor::empty({1}, Device::kCuda), other);
          }
          self.world.send(numbers(0, count), other);  // both send first
          self.world.recv(Tensor::empty({count}, Device::kCuda), other);
        },
        3s);
    for (const std::string& error : errors)
      EXPECT_TRUE(contains(error, "send(to") && contains(error, "no answer within 3 s")) << error;
  }
}

TEST_P(NcclPair, MessagesInAnotherOrderAreAnError) {
  const RankErrors errors = run_hasty(
      [&](GpuRank& self) {
        std::vector<Work> works;
        for (const int tag : {1, 2}) {
          if (self.world.rank() == 0)
            works.push_back(self.world.isend(numbers(tag, 50), 1, tag));
          else
            works.push_back(self.world.irecv(Tensor::empty({50}, Device::kCuda), 0, 3 - tag));
        }
        wait_all(works);
      },
      10s);
  for (const std::string& error : errors)
    EXPECT_TRUE(contains(error, "received in another order than they were sent") &&
                contains(error, "--comm gloo"))
        << error;
}

TEST_P(NcclPair, MessagesOfUnequalSizesAreNotDelivered) {
  for (const int64_t sent : {1, 3}) {
    const RankErrors errors = run_hasty(
        [&](GpuRank& self) {
          if (self.world.rank() == 0)
            self.world.send(numbers(0, sent), 1);
          else
            self.world.recv(Tensor::empty({2}, Device::kCuda), 0);
        },
        1s);
    EXPECT_TRUE(contains(errors[0], "rank 0: send(to 1")) << errors[0];
    EXPECT_TRUE(contains(errors[1], "rank 1: recv(from 0")) << errors[1];
  }
}

TEST_P(NcclPair, CollectivesThatDifferAreAnError) {
  const std::vector<RankBody> others{
      [](GpuRank& self) { self.world.all_reduce(numbers(1, 6)); },
      [](GpuRank& self) { self.world.broadcast(numbers(1, 5), 0); },
      [](GpuRank& self) { self.world.all_reduce(numbers(1, 5), ReduceOp::kMax); }};
  for (const RankBody& other : others) {
    const RankErrors errors = run_hasty(
        [&](GpuRank& self) {
          if (self.world.rank() == 0)
            self.world.all_reduce(numbers(0, 5));
          else
            other(self);
        },
        10s);
    for (const std::string& error : errors)
      EXPECT_TRUE(contains(error, "entered different collectives")) << error;
  }
}

TEST_P(NcclPair, AnAbsentRankEndsAtTheDeadline) {
  const RankErrors errors = run_hasty([&](GpuRank& self) {
    if (self.world.rank() == 1) return;
    const std::string first = error_of([&] { self.world.all_reduce(numbers(0, 5)); });
    EXPECT_TRUE(contains(first, "all_reduce #1")) << first;
    EXPECT_TRUE(contains(first, "no answer within 0.3 s")) << first;
    // The connections are finished, and say so.
    for (const auto& later : {error_of([&] { self.world.all_reduce(numbers(0, 5)); }),
                              error_of([&] { self.world.send(numbers(0, 5), 1); })}) {
      EXPECT_TRUE(contains(later, "closed earlier")) << later;
      EXPECT_TRUE(contains(later, "no answer within 0.3 s")) << later;
    }
  });
  EXPECT_EQ(errors[0].find("closed earlier"), std::string::npos) << errors[0];
}

}  // namespace
}  // namespace lab::test
