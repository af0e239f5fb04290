// Every verb of ProcessGroup in simulated jobs of 1 to 6 ranks, with messages late and out of
// order.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <tuple>

#include "common/comm/sim/simulation.h"
#include "tests/unit/simulated_job.h"

namespace lab::simulation_verbs_test {
namespace {

class SimulatedVerbs : public testing::TestWithParam<std::tuple<int, int>> {
 protected:
  int ranks() const { return std::get<0>(GetParam()); }
  int64_t count() const { return std::get<1>(GetParam()); }
  SimulationOptions options() const {
    return {.ranks = ranks(), .seed = 3, .max_delay = 4, .shuffle_ranks = true};
  }
  // Element by element over the numbers of all ranks.
  template <typename Combine>
  Numbers combined(int64_t elements, Combine combine) const {
    Numbers result = numbers_of(0, elements);
    for (int r = 1; r < ranks(); ++r) {
      const Numbers other = numbers_of(r, elements);
      for (size_t i = 0; i < result.size(); ++i) result[i] = combine(result[i], other[i]);
    }
    return result;
  }
  Numbers sum(int64_t elements) const {
    return combined(elements, [](float a, float b) { return a + b; });
  }
};

INSTANTIATE_TEST_SUITE_P(RanksAndSizes, SimulatedVerbs,
                         testing::Combine(testing::Range(1, 7), testing::Values(0, 1, 7, 1000)));

TEST_P(SimulatedVerbs, SendAndRecvAroundARing) {
  if (ranks() == 1) return;  // no other rank to send to
  const auto got = results(options(), [&](ProcessGroup& world) {
    const int next = (world.rank() + 1) % ranks();
    const int previous = (world.rank() + ranks() - 1) % ranks();
    const Tensor received = blank(count());
    if (world.rank() % 2 == 0) {
      world.send(tensor_of(world.rank(), count()), next);
      world.recv(received, previous);
    } else {
      world.recv(received, previous);
      world.send(tensor_of(world.rank(), count()), next);
    }
    return contents(received);
  });
  for (int r = 0; r < ranks(); ++r)
    EXPECT_EQ(got[static_cast<size_t>(r)], numbers_of((r + ranks() - 1) % ranks(), count())) << r;
}

TEST_P(SimulatedVerbs, BatchAmongAllRanks) {
  const auto got = results(options(), [&](ProcessGroup& world) {
    std::vector<P2POp> operations;
    std::vector<Tensor> received;
    for (int peer = 0; peer < ranks(); ++peer) {
      if (peer == world.rank()) continue;
      received.push_back(blank(count()));
      operations.push_back({P2POp::Kind::kSend, tensor_of(world.rank(), count()), peer, 5});
      operations.push_back({P2POp::Kind::kRecv, received.back(), peer, 5});
    }
    auto works = world.batch_isend_irecv(operations);
    wait_all(works);
    Numbers all;
    for (const Tensor& tensor : received) std::ranges::copy(contents(tensor), back_inserter(all));
    return all;
  });
  for (int r = 0; r < ranks(); ++r) {
    Numbers expected;
    for (int peer = 0; peer < ranks(); ++peer)
      if (peer != r) std::ranges::copy(numbers_of(peer, count()), back_inserter(expected));
    EXPECT_EQ(got[static_cast<size_t>(r)], expected) << r;
  }
}

TEST_P(SimulatedVerbs, Broadcast) {
  for (int root = 0; root < ranks(); ++root) {
    const auto got = results(options(), [&](ProcessGroup& world) {
      const Tensor tensor = tensor_of(world.rank(), count());
      world.broadcast(tensor, root);
      return contents(tensor);
    });
    for (const Numbers& numbers : got) EXPECT_EQ(numbers, numbers_of(root, count()));
  }
}

TEST_P(SimulatedVerbs, ReduceChangesTheRootOnly) {
  for (int root = 0; root < ranks(); ++root) {
    const auto got = results(options(), [&](ProcessGroup& world) {
      const Tensor tensor = tensor_of(world.rank(), count());
      world.reduce(tensor, root);
      return contents(tensor);
    });
    for (int r = 0; r < ranks(); ++r)
      EXPECT_EQ(got[static_cast<size_t>(r)], r == root ? sum(count()) : numbers_of(r, count()));
  }
}

TEST_P(SimulatedVerbs, AllReduce) {
  const auto all_reduced = [&](ReduceOp op) {
    return results(options(), [&, op](ProcessGroup& world) {
      const Tensor tensor = tensor_of(world.rank(), count());
      world.all_reduce(tensor, op);
      return contents(tensor);
    });
  };
  for (const Numbers& numbers : all_reduced(ReduceOp::kSum)) EXPECT_EQ(numbers, sum(count()));
  for (const Numbers& numbers : all_reduced(ReduceOp::kMin))
    EXPECT_EQ(numbers, numbers_of(0, count()));
  for (const Numbers& numbers : all_reduced(ReduceOp::kMax))
    EXPECT_EQ(numbers, numbers_of(ranks() - 1, count()));
}

TEST_P(SimulatedVerbs, AllGather) {
  const auto got = results(options(), [&](ProcessGroup& world) {
    const Tensor output = blank(ranks() * count());
    world.all_gather(output, tensor_of(world.rank(), count()));
    return contents(output);
  });
  Numbers expected;
  for (int r = 0; r < ranks(); ++r)
    std::ranges::copy(numbers_of(r, count()), back_inserter(expected));
  for (const Numbers& numbers : got) EXPECT_EQ(numbers, expected);
}

TEST_P(SimulatedVerbs, GatherAndScatterInPlace) {
  const auto got = results(options(), [&](ProcessGroup& world) {
    const int64_t first = world.rank() * count();
    const Tensor all = tensor_of(world.rank(), ranks() * count());
    const Tensor own = all.rows(first, first + count());
    world.reduce_scatter(own, all);
    world.all_gather_async(all, own).wait();
    return contents(all);
  });
  for (const Numbers& numbers : got) EXPECT_EQ(numbers, sum(ranks() * count()));
}

TEST_P(SimulatedVerbs, ReduceScatter) {
  const auto got = results(options(), [&](ProcessGroup& world) {
    const Tensor output = blank(count());
    world.reduce_scatter(output, tensor_of(world.rank(), ranks() * count()));
    return contents(output);
  });
  const Numbers all = sum(ranks() * count());
  for (int r = 0; r < ranks(); ++r) {
    const auto part = all.begin() + r * count();
    EXPECT_EQ(got[static_cast<size_t>(r)], Numbers(part, part + count())) << r;
  }
}

// No rank leaves a collective before the last one has come, though tensors may be empty.
TEST_P(SimulatedVerbs, CollectivesAreRendezvous) {
  int arrived = 0;
  const auto got = results(options(), [&](ProcessGroup& world) {
    Numbers seen;
    ++arrived;
    world.barrier();
    seen.push_back(static_cast<float>(arrived));
    world.barrier();
    ++arrived;
    world.broadcast(blank(count()), ranks() - 1);
    seen.push_back(static_cast<float>(arrived));
    return seen;
  });
  const auto n = static_cast<float>(ranks());
  for (const Numbers& seen : got) EXPECT_EQ(seen, (Numbers{n, 2 * n}));
}

TEST(SimulationVerbs, ReductionsHaveTheSameBitsEverywhere) {
  const auto got = results({.ranks = 5}, [&](ProcessGroup& world) {
    std::mt19937 random(static_cast<unsigned>(world.rank()));
    Numbers numbers(100);
    for (float& x : numbers) x = static_cast<float>(random()) / 3e5F;
    const Tensor tensor = Tensor::from(numbers, {100});
    world.all_reduce(tensor);
    return contents(tensor);
  });
  for (const Numbers& numbers : got) EXPECT_EQ(numbers, got[0]);
}

}  // namespace
}  // namespace lab::simulation_verbs_test
