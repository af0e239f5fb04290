// ProcessGroup over NCCL: what the verbs mean for tensors in GPU memory.

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "common/tensor/tensor.h"
#include "tests/gpu/nccl_test.h"

namespace lab::test {
namespace {

using namespace std::chrono_literals;

class Nccl : public testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    if (const std::string reason = why_not_run(ranks()); !reason.empty()) GTEST_SKIP() << reason;
  }
  static int ranks() { return GetParam(); }
  void run(const RankBody& body) const {
    EXPECT_EQ(run_ranks({.ranks = ranks()}, body), RankErrors(static_cast<size_t>(ranks())));
  }
};

INSTANTIATE_TEST_SUITE_P(Ranks, Nccl, testing::Values(2, 3, 6));

constexpr int64_t kCounts[] = {0, 1, 2, 5, 17, 1000, 70'001};

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

TEST_P(Nccl, PostedCollectivesKeepTheirOrder) {
  run([&](GpuRank& self) {
    ProcessGroup& world = self.world;
    const int rank = world.rank();
    for (const int64_t count : kCounts) {
      const Tensor sum = numbers(rank, count);
      const Tensor all = Tensor::zeros({ranks(), count}, Device::kCuda);
      const Tensor part = Tensor::zeros({count}, Device::kCuda);
      std::vector<Work> works;
      works.push_back(world.all_reduce_async(sum));
      works.push_back(world.all_gather_async(all, sum));  // of the sums: after the first
      works.push_back(world.reduce_scatter_async(part, numbers(rank, ranks() * count)));
      const Tensor largest = numbers(rank, count);
      world.all_reduce(largest, ReduceOp::kMax);  // after all of them
      works[2].wait();
      works[0].wait();
      works[1].wait();
      const auto sum_at = [&](int64_t i) { return sum_of(ranks(), i); };
      expect_all(sum, sum_at, "sum");
      for (int r = 0; r < ranks(); ++r) expect_all(all.rows(r, r + 1), sum_at, "gathered sums");
      expect_all(
          part, [&](int64_t i) { return sum_of(ranks(), rank * count + i); }, "scattered");
      expect_all(largest, from(ranks() - 1), "max");
    }
    EXPECT_TRUE(world.recorder().snapshot().pending.empty());
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
    for (uint32_t tag = 1; tag <= 3; ++tag)
      self.gpus.run({.kind = OpKind::kBarrier, .call = {.tag = tag, .timeout = 20s}});
    // A collective without numbers is one too.
    self.gpus.run({.kind = OpKind::kAllReduce, .call = {.tag = 4, .timeout = 20s}});
  });
}

/// Runs two ranks, which must return.
void run_pair(const RankBody& body) { EXPECT_EQ(run_ranks({.ranks = 2}, body), RankErrors(2)); }

TEST_F(NcclPair, WhatWasAskedOfTheGpuBeforeIsSent) {
  run_pair([&](GpuRank& self) {
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

TEST_F(NcclPair, AMessageThatNobodyWaitsForGoesOn) {
  run_pair([&](GpuRank& self) {
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

}  // namespace
}  // namespace lab::test
