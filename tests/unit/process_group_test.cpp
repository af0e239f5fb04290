// ProcessGroup over both transports: Gloo, with its ranks as threads of this process, and
// simulated.
#include "common/comm/process_group.h"

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "common/comm/sim/simulation.h"
#include "common/error.h"
#include "tests/unit/gloo_ranks.h"

namespace lab::process_group_test {
namespace {

using namespace std::chrono_literals;

Errors run_simulated(int ranks, const Body& body) {
  return simulate({.ranks = ranks}, body).errors;
}

struct Setting {
  std::string transport;
  int ranks;
};

class ProcessGroupTest : public testing::TestWithParam<Setting> {
 protected:
  int ranks() const { return GetParam().ranks; }
  void run(const Body& body) const {
    const Errors errors = GetParam().transport == "gloo" ? run_over_gloo(ranks(), body)
                                                         : run_simulated(ranks(), body);
    for (size_t rank = 0; rank < errors.size(); ++rank)
      EXPECT_EQ(errors[rank], "") << "rank " << rank;
  }
};

INSTANTIATE_TEST_SUITE_P(Transports, ProcessGroupTest,
                         testing::Values(Setting{"gloo", 1}, Setting{"gloo", 2}, Setting{"gloo", 3},
                                         Setting{"gloo", 6}, Setting{"simulated", 1},
                                         Setting{"simulated", 2}, Setting{"simulated", 3},
                                         Setting{"simulated", 6}),
                         [](const auto& setting) {
                           return setting.param.transport + std::to_string(setting.param.ranks);
                         });

constexpr int64_t kCounts[] = {0, 1, 2, 5, 17, 1000, 70'001};

/// Small whole numbers, so that sums are exact in any order.
float number(int rank, int64_t i) { return static_cast<float>((rank + 1) * 7 + i % 13); }

Tensor numbers(int rank, int64_t count) {
  const Tensor tensor = Tensor::empty({count});
  for (int64_t i = 0; i < count; ++i) tensor.data()[i] = number(rank, i);
  return tensor;
}

float sum_of(int ranks, int64_t i) {
  float sum = 0;
  for (int r = 0; r < ranks; ++r) sum += number(r, i);
  return sum;
}

template <typename Right>
void expect_all(const Tensor& tensor, const Right& right, const char* what) {
  for (int64_t i = 0; i < tensor.numel(); ++i)
    ASSERT_EQ(tensor.data()[i], right(i)) << what << ", element " << i << " of " << tensor.numel();
}

TEST_P(ProcessGroupTest, AllReduceCombinesOnEveryRank) {
  run([&](ProcessGroup& world) {
    for (int64_t count : kCounts) {
      const Tensor sum = numbers(world.rank(), count);
      world.all_reduce(sum);
      expect_all(
          sum, [&](int64_t i) { return sum_of(ranks(), i); }, "sum");
      const Tensor largest = numbers(world.rank(), count);
      world.all_reduce(largest, ReduceOp::kMax);
      expect_all(
          largest, [&](int64_t i) { return number(ranks() - 1, i); }, "max");
      const Tensor least = numbers(world.rank(), count);
      world.all_reduce(least, ReduceOp::kMin);
      expect_all(
          least, [&](int64_t i) { return number(0, i); }, "min");
    }
  });
}

TEST_P(ProcessGroupTest, BroadcastAndReduceUseTheRoot) {
  run([&](ProcessGroup& world) {
    for (int root : {0, ranks() - 1})
      for (int64_t count : kCounts) {
        const Tensor copy = numbers(world.rank(), count);
        world.broadcast(copy, root);
        expect_all(
            copy, [&](int64_t i) { return number(root, i); }, "broadcast");
        const Tensor sum = numbers(world.rank(), count);
        world.reduce(sum, root);
        expect_all(
            sum,
            [&](int64_t i) {
              return world.rank() == root ? sum_of(ranks(), i) : number(world.rank(), i);
            },
            "reduce");
      }
  });
}

TEST_P(ProcessGroupTest, GatherAndScatterGoByRank) {
  run([&](ProcessGroup& world) {
    for (int64_t count : kCounts) {
      const Tensor all = Tensor::zeros({ranks(), count});
      world.all_gather(all, numbers(world.rank(), count));
      for (int r = 0; r < ranks(); ++r)
        expect_all(
            all.rows(r, r + 1), [&](int64_t i) { return number(r, i); }, "all_gather");

      const Tensor parts = numbers(world.rank(), ranks() * count);
      const Tensor part = Tensor::zeros({count});
      world.reduce_scatter(part, parts);
      expect_all(
          part, [&](int64_t i) { return sum_of(ranks(), world.rank() * count + i); },
          "reduce_scatter");
      expect_all(
          parts, [&](int64_t i) { return number(world.rank(), i); }, "input");
    }
  });
}

TEST_P(ProcessGroupTest, GatherAndScatterInPlace) {
  run([&](ProcessGroup& world) {
    for (int64_t count : kCounts) {
      const int64_t first = world.rank() * count;
      const Tensor all = Tensor::zeros({ranks() * count});
      all.rows(first, first + count).copy_from(numbers(world.rank(), count));
      world.all_gather(all, all.rows(first, first + count));
      for (int r = 0; r < ranks(); ++r)
        expect_all(
            all.rows(r * count, (r + 1) * count), [&](int64_t i) { return number(r, i); },
            "all_gather");

      const Tensor parts = numbers(world.rank(), ranks() * count);
      world.reduce_scatter(parts.rows(first, first + count), parts);
      expect_all(
          parts.rows(first, first + count), [&](int64_t i) { return sum_of(ranks(), first + i); },
          "reduce_scatter");
      if (world.rank() > 0)
        expect_all(
            parts.rows(0, first), [&](int64_t i) { return number(world.rank(), i); },
            "another rank's part");
    }
  });
}

TEST_P(ProcessGroupTest, MessagesArriveInOrderAndByTag) {
  if (ranks() == 1) GTEST_SKIP() << "one rank has nobody to write to";
  run([&](ProcessGroup& world) {
    const int right = (world.rank() + 1) % ranks();
    const int left = (world.rank() + ranks() - 1) % ranks();
    for (int64_t count : kCounts) {
      std::vector<Work> works;
      for (int tag : {5, 0, 5})
        works.push_back(
            world.isend(numbers(world.rank() + tag + int(works.size()), count), right, tag));
      const Tensor late = Tensor::empty({count});
      const Tensor first = Tensor::empty({count});
      const Tensor second = Tensor::empty({count});
      world.recv(late, left, 0);
      world.recv(first, left, 5);
      world.recv(second, left, 5);
      wait_all(works);
      expect_all(
          late, [&](int64_t i) { return number(left + 1, i); }, "tag 0");
      expect_all(
          first, [&](int64_t i) { return number(left + 5, i); }, "tag 5, first");
      expect_all(
          second, [&](int64_t i) { return number(left + 7, i); }, "tag 5, second");
    }
  });
}

TEST_P(ProcessGroupTest, BatchesNeverDeadlock) {
  if (ranks() == 1) GTEST_SKIP() << "one rank has nobody to write to";
  run([&](ProcessGroup& world) {
    std::vector<P2POp> batch;
    std::vector<Tensor> arrived;
    for (int peer = 0; peer < ranks(); ++peer) {
      if (peer == world.rank()) continue;
      arrived.push_back(Tensor::zeros({1000}));
      batch.push_back({P2POp::Kind::kSend, numbers(world.rank(), 1000), peer, 0});
      batch.push_back({P2POp::Kind::kRecv, arrived.back(), peer, 0});
    }
    std::vector<Work> works = world.batch_isend_irecv(batch);
    wait_all(works);
    size_t next = 0;
    for (int peer = 0; peer < ranks(); ++peer)
      if (peer != world.rank())
        expect_all(
            arrived[next++], [&](int64_t i) { return number(peer, i); }, "batch");
  });
}

TEST_P(ProcessGroupTest, SplitMakesGroupsByColorAndKey) {
  run([&](ProcessGroup& world) {
    const int color = world.rank() % 2;
    ProcessGroup group = world.split(color, -world.rank(), "parity " + std::to_string(color));
    EXPECT_EQ(group.name(), "parity " + std::to_string(color));
    EXPECT_EQ(group.size(), (ranks() + 1 - color) / 2);
    // The key turns the order around.
    for (int r = 0; r < group.size(); ++r)
      EXPECT_EQ(group.world_rank(r), (group.size() - 1 - r) * 2 + color);
    EXPECT_EQ(group.world_rank(group.rank()), world.rank());
    const Tensor sum = Tensor::from({1.0F, static_cast<float>(world.rank())}, {2});
    group.all_reduce(sum);
    EXPECT_EQ(sum.data()[0], static_cast<float>(group.size()));
    float ranks_in_it = 0;
    for (int r = color; r < ranks(); r += 2) ranks_in_it += static_cast<float>(r);
    EXPECT_EQ(sum.data()[1], ranks_in_it);
    // Messages and collectives of two groups do not meet.
    if (group.size() > 1) {
      if (group.rank() == 0) group.send(numbers(1, 10), 1);
      if (group.rank() == 1) group.recv(Tensor::empty({10}), 0);
    }
    ProcessGroup inner = group.split(0, 0);
    inner.barrier();
    world.barrier();
  });
}

TEST_P(ProcessGroupTest, CountsWhatItSends) {
  run([&](ProcessGroup& world) {
    const int right = (world.rank() + 1) % ranks();
    const int left = (world.rank() + ranks() - 1) % ranks();
    if (ranks() > 1) {
      const Tensor arrived = Tensor::empty({25});
      Work work = world.irecv(arrived, left);
      world.send(Tensor::zeros({25}), right);
      work.wait();
    }
    world.all_reduce(Tensor::zeros({7, 3}));
    world.all_reduce(Tensor::zeros({4}));
    const RankSnapshot snapshot = world.recorder().snapshot();
    const auto traffic = [&](OpKind kind) { return snapshot.traffic[static_cast<size_t>(kind)]; };
    EXPECT_EQ(traffic(OpKind::kAllReduce).operations, 2U);
    EXPECT_EQ(traffic(OpKind::kAllReduce).bytes, 100U);
    EXPECT_EQ(traffic(OpKind::kSend).bytes, ranks() > 1 ? 100U : 0U);
    EXPECT_EQ(traffic(OpKind::kRecv).operations, ranks() > 1 ? 1U : 0U);
    EXPECT_TRUE(snapshot.pending.empty());
  });
}

TEST_P(ProcessGroupTest, RefusesWhatMakesNoSense) {
  run([&](ProcessGroup& world) {
    const Tensor tensor = Tensor::zeros({4, 4});
    EXPECT_THROW(world.send(tensor, world.rank()), Error);
    EXPECT_THROW(world.send(tensor, ranks()), Error);
    EXPECT_THROW(world.recv(tensor, -1), Error);
    EXPECT_THROW(world.broadcast(tensor, ranks()), Error);
    EXPECT_THROW(world.all_reduce(tensor.columns(0, 2)), Error);
    EXPECT_THROW(world.all_reduce(Tensor()), Error);
    EXPECT_THROW(world.all_gather(tensor, tensor.rows(0, 3)), Error);
    EXPECT_THROW(world.split(-1, 0), Error);
    if (ranks() > 1) {
      const int other = (world.rank() + 1) % ranks();
      EXPECT_THROW(world.send(tensor, other, -1), Error);
      EXPECT_THROW(world.send(tensor.columns(0, 2), other), Error);
    }
    world.barrier();  // none of it has reached the others
  });
}

TEST(ProcessGroupOverGloo, AMessageThatNobodyWaitsForKeepsItsMemory) {
  const Errors errors = run_over_gloo(2, [](ProcessGroup& world) {
    if (world.rank() == 0) {
      Work forgotten = world.isend(numbers(3, 100'000), 1);
    } else {
      const Tensor arrived = Tensor::empty({100'000});
      world.recv(arrived, 0);
      expect_all(
          arrived, [](int64_t i) { return number(3, i); }, "forgotten");
    }
  });
  EXPECT_EQ(errors, (Errors{"", ""}));
}

TEST(ProcessGroupOverGloo, AMessageThatNobodyWaitsForMayOutliveItsGroup) {
  const Errors errors = run_over_gloo(2, [](ProcessGroup& world) {
    std::vector<Work> works;
    {
      ProcessGroup pair = world.split(0, world.rank());
      works.push_back(pair.isend(numbers(world.rank(), 10), 1 - world.rank()));
      const Tensor arrived = Tensor::empty({10});
      pair.recv(arrived, 1 - world.rank());
      pair.barrier();  // no message is pending any more
    }
    works.clear();  // the last owners of the group
  });
  EXPECT_EQ(errors, (Errors{"", ""}));
}

// Gloo alone would abort the process, or deliver a part of the message.
TEST(ProcessGroupOverGloo, UnequalSizesMakeBothSidesWait) {
  for (int64_t sent : {1, 3}) {
    const Errors errors = run_over_gloo(
        2,
        [&](ProcessGroup& world) {
          if (world.rank() == 0)
            world.send(numbers(0, sent), 1);
          else
            world.recv(Tensor::empty({2}), 0);
        },
        300ms);
    EXPECT_NE(errors[0].find("rank 0: send(to 1"), std::string::npos) << errors[0];
    EXPECT_NE(errors[1].find("rank 1: recv(from 0"), std::string::npos) << errors[1];
  }
}

TEST(ProcessGroupOverGloo, CollectivesThatDifferMakeAllWait) {
  const std::vector<Body> others{
      [](ProcessGroup& world) { world.all_reduce(numbers(1, 6)); },
      [](ProcessGroup& world) { world.all_reduce(numbers(1, 0)); },
      [](ProcessGroup& world) { world.broadcast(numbers(1, 5), 0); },
      [](ProcessGroup& world) { world.all_reduce(numbers(1, 5), ReduceOp::kMax); }};
  for (const Body& other : others) {
    const Errors errors = run_over_gloo(
        2,
        [&](ProcessGroup& world) {
          if (world.rank() == 0)
            world.all_reduce(numbers(0, 5));
          else
            other(world);
        },
        300ms);
    EXPECT_NE(errors[0].find("all_reduce #1"), std::string::npos) << errors[0];
    EXPECT_NE(errors[1], "");
  }
}

TEST(ProcessGroupOverGloo, SendWaitsForItsReceiver) {
  const Errors errors = run_over_gloo(
      2,
      [](ProcessGroup& world) {
        const int other = 1 - world.rank();
        world.send(numbers(0, 1), other);  // both send first
        world.recv(Tensor::empty({1}), other);
      },
      300ms);
  EXPECT_NE(errors[0], "");
  EXPECT_NE(errors[1], "");
}

TEST(ProcessGroupOverGloo, ResultsAreTheSameBitsOnAllRanks) {
  constexpr int kRanks = 3;
  std::vector<Tensor> results(kRanks);
  const Errors errors = run_over_gloo(kRanks, [&](ProcessGroup& world) {
    const Tensor tensor = Tensor::empty({100'001});
    for (int64_t i = 0; i < tensor.numel(); ++i)
      tensor.data()[i] = 1.0F / static_cast<float>(3 * i + world.rank() + 1);
    world.all_reduce(tensor);
    results[static_cast<size_t>(world.rank())] = tensor;
  });
  EXPECT_EQ(errors, Errors(kRanks));
  for (int rank = 1; rank < kRanks; ++rank)
    expect_all(
        results[static_cast<size_t>(rank)], [&](int64_t i) { return results[0].data()[i]; },
        "bits");
}

}  // namespace
}  // namespace lab::process_group_test
