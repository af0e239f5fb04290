// The simulated network: nothing is buffered that should not be; delays, tags, groups and memory.
#include "common/comm/sim/simulation.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <functional>
#include <memory>

#include "common/comm/sim/sim_transport.h"
#include "common/error.h"
#include "tests/unit/simulated_job.h"

namespace lab::simulation_test {
namespace {

TEST(Simulation, PostingBothAndThenWaitingIsNone) {
  const auto got = results({.ranks = 2}, [](ProcessGroup& world) {
    const Tensor received = blank(10);
    Work send = world.isend(tensor_of(world.rank(), 10), 1 - world.rank());
    Work recv = world.irecv(received, 1 - world.rank());
    send.wait();
    recv.wait();
    recv.wait();  // does nothing
    return contents(received);
  });
  EXPECT_EQ(got[0], numbers_of(1, 10));
  EXPECT_EQ(got[1], numbers_of(0, 10));
}

TEST(Simulation, BuffersHideTheDeadlockOfSmallMessages) {
  const SimulationOptions options{.ranks = 3, .buffered_bytes = 4096};
  const auto small = simulate(options, sends_first(1024));
  EXPECT_TRUE(small.succeeded()) << explain(small);
  const auto large = simulate(options, sends_first(1025));
  ASSERT_TRUE(large.diagnosis);
  EXPECT_EQ(large.diagnosis->kind, Diagnosis::Kind::kDeadlock);
}

TEST(Simulation, ABufferedMessageIsACopyAndOutlivesItsSender) {
  const auto got = results({.ranks = 3, .buffered_bytes = 100}, [](ProcessGroup& world) {
    const Tensor tensor = tensor_of(0, 10);
    if (world.rank() == 0) {
      world.send(tensor, 1);
      tensor.fill(0);
      world.send(blank(1), 2);
      return Numbers{};
    }
    if (world.rank() == 2) {
      world.recv(blank(1), 0);
      world.send(blank(1), 1);
      return Numbers{};
    }
    world.recv(blank(1), 2);  // now rank 0 has ended
    world.recv(tensor, 0);
    return contents(tensor);
  });
  EXPECT_EQ(got[1], numbers_of(0, 10));
}

TEST(Simulation, MessagesOfOneTagArriveInTheOrderOfSending) {
  constexpr int kMessages = 8;
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    const SimulationOptions options{
        .ranks = 2, .seed = seed, .max_delay = 20, .shuffle_ranks = true};
    const auto got = results(options, [](ProcessGroup& world) {
      std::vector<Work> works;
      const Tensor received = blank(kMessages);
      for (int i = 0; i < kMessages; ++i)
        works.push_back(world.rank() == 0 ? world.isend(tensor_of(i, 1), 1, 7)
                                          : world.irecv(received.rows(i, i + 1), 0, 7));
      std::ranges::reverse(works);
      wait_all(works);
      return contents(received);
    });
    for (int i = 0; i < kMessages; ++i)
      EXPECT_EQ(got[1][static_cast<size_t>(i)], numbers_of(i, 1)[0]) << "seed " << seed;
  }
}

TEST(Simulation, TagsKeepMessagesApart) {
  const auto got = results({.ranks = 2}, [](ProcessGroup& world) {
    const Tensor received = blank(3);
    std::vector<Work> works;
    if (world.rank() == 0)
      for (const int tag : {0, 1, ProcessGroup::kMaxTag})
        works.push_back(world.isend(tensor_of(tag % 10, 1), 1, tag));
    wait_all(works);
    int64_t i = 0;
    if (world.rank() == 1)
      for (const int tag : {ProcessGroup::kMaxTag, 0, 1}) {
        world.recv(received.rows(i, i + 1), 0, tag);
        ++i;
      }
    return contents(received);
  });
  const int last = ProcessGroup::kMaxTag % 10;
  EXPECT_EQ(got[1], (Numbers{numbers_of(last, 1)[0], numbers_of(0, 1)[0], numbers_of(1, 1)[0]}));
}

// The order in which ranks 1 to 4 get the messages that rank 0 sends them in turn.
std::vector<int> order_of_arrival(const SimulationOptions& options) {
  std::vector<int> order;
  const auto report = simulate(options, [&](ProcessGroup& world) {
    if (world.rank() != 0) {
      world.recv(blank(1), 0);
      order.push_back(world.rank());
      return;
    }
    std::vector<Work> works;
    for (int peer = 1; peer < world.size(); ++peer) works.push_back(world.isend(blank(1), peer));
    wait_all(works);
  });
  EXPECT_TRUE(report.succeeded()) << explain(report);
  return order;
}

TEST(Simulation, DelaysReorderMessagesBetweenDifferentRanks) {
  const auto plain = order_of_arrival({.ranks = 5, .seed = 1});
  EXPECT_EQ(plain, (std::vector<int>{1, 2, 3, 4}));
  EXPECT_EQ(order_of_arrival({.ranks = 5, .seed = 2}), plain) << "nothing is drawn";
  int different = 0;
  for (uint64_t seed = 1; seed <= 10; ++seed)
    different += order_of_arrival({.ranks = 5, .seed = seed, .max_delay = 20}) != plain ? 1 : 0;
  EXPECT_GE(different, 5);
  EXPECT_NE(order_of_arrival({.ranks = 5, .seed = 1, .shuffle_ranks = true}),
            order_of_arrival({.ranks = 5, .seed = 2, .shuffle_ranks = true}));
}

// Over seeds, a program that looks before it waits sees old numbers, and one that writes before it
// waits sends wrong ones.
TEST(Simulation, DelaysExposeMissingWaits) {
  int stale = 0;
  int overwritten = 0;
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    const auto got = results({.ranks = 2, .seed = seed, .max_delay = 10}, [](ProcessGroup& world) {
      const Tensor first = tensor_of(0, 1);
      const Tensor second = tensor_of(0, 1);
      if (world.rank() == 0) {
        Work one = world.isend(first, 1);
        Work two = world.isend(second, 1);
        two.wait();
        first.fill(-2);
        one.wait();
        return Numbers{};
      }
      Work one = world.irecv(first, 0);
      Work two = world.irecv(second, 0);
      first.fill(-1);
      two.wait();
      const float before = contents(first)[0];
      one.wait();
      return Numbers{before, contents(first)[0]};
    });
    stale += got[1][0] == -1 ? 1 : 0;
    overwritten += got[1][1] == -2 ? 1 : 0;
  }
  EXPECT_GE(stale, 1);
  EXPECT_GE(overwritten, 1);
}

// A rank that waits for the slow link goes on last; others are not affected. A message in the other
// direction is as fast as ever.
TEST(Simulation, ASlowLinkDeliversWhenNobodyElseCanGoOn) {
  std::vector<int> order;
  const auto body = [&](ProcessGroup& world) {
    const int rank = world.rank();
    if (rank == 0) {
      Work slow = world.isend(tensor_of(0, 1), 1);
      world.recv(blank(1), 1);
      order.push_back(0);
      slow.wait();
    } else if (rank == 1) {
      const Tensor received = blank(1);
      Work slow = world.irecv(received, 0);
      world.send(blank(1), 0);
      slow.wait();
      EXPECT_EQ(contents(received), numbers_of(0, 1));
      order.push_back(1);
    } else {
      for (int round = 0; round < 50; ++round) {
        if (rank == 2) world.send(blank(1), 3);
        if (rank == 3) world.recv(blank(1), 2);
      }
      order.push_back(rank);
    }
  };
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    order.clear();
    const auto report = simulate({.ranks = 4,
                                  .seed = seed,
                                  .max_delay = 5,
                                  .shuffle_ranks = true,
                                  .slow_link = {{.from = 0, .to = 1}}},
                                 body);
    ASSERT_TRUE(report.succeeded()) << explain(report);
    ASSERT_EQ(order.size(), 4U);
    EXPECT_EQ(order.back(), 1) << "seed " << seed;
    const auto last = [&](size_t rank) { return report.history[rank].back(); };
    EXPECT_GT(last(1).done_ns, last(2).done_ns);
    EXPECT_GT(last(1).done_ns, last(3).done_ns);
  }
}

TEST(Simulation, TimeIsSimulated) {
  const auto report = simulate({.ranks = 2}, [](ProcessGroup& world) {
    if (world.rank() == 0) world.send(blank(1), 1);
    if (world.rank() == 1) world.recv(blank(1), 0);
    world.barrier();
  });
  ASSERT_TRUE(report.succeeded()) << explain(report);
  const auto times = [&](size_t rank, size_t i) {
    const OpRecord& op = report.history[rank].at(i);
    return std::array{op.posted_ns, op.waiting_ns, op.done_ns};
  };
  using Times = std::array<int64_t, 3>;
  EXPECT_EQ(times(0, 0), (Times{1, 2, 4})) << "waits until rank 1 stands in the barrier";
  EXPECT_EQ(times(1, 0), (Times{2, 3, 3}));
  EXPECT_EQ(times(1, 1), (Times{3, 3, 5}));
  EXPECT_EQ(times(0, 1), (Times{4, 4, 5}));
}

TEST(Simulation, SubGroupsHaveTrafficOfTheirOwn) {
  const SimulationOptions options{.ranks = 6, .seed = 5, .max_delay = 6, .shuffle_ranks = true};
  const auto got = results(options, [](ProcessGroup& world) {
    // Pipelines {0, 1, 2} and {3, 4, 5}, numbered backwards; data groups {0, 3}, {1, 4}, {2, 5}.
    ProcessGroup pipeline = world.split(world.rank() / 3, -world.rank(), "pipeline");
    ProcessGroup data = world.split(world.rank() % 3, world.rank());
    Numbers seen{static_cast<float>(pipeline.rank()), static_cast<float>(data.rank())};

    const Tensor received = blank(1);  // the same tag in three groups at once
    Work in_world = world.isend(tensor_of(0, 1), (world.rank() + 1) % 6);
    Work in_data = data.isend(tensor_of(1, 1), 1 - data.rank());
    Work in_pipeline = pipeline.isend(tensor_of(2, 1), (pipeline.rank() + 1) % 3);
    pipeline.recv(received, (pipeline.rank() + 2) % 3);
    seen.push_back(received.values()[0]);
    data.recv(received, 1 - data.rank());
    seen.push_back(received.values()[0]);
    world.recv(received, (world.rank() + 5) % 6);
    seen.push_back(received.values()[0]);
    in_world.wait();
    in_data.wait();
    in_pipeline.wait();

    const Tensor sum = tensor_of(world.rank(), 1);
    pipeline.all_reduce(sum);
    data.all_reduce(sum);
    seen.push_back(sum.values()[0]);
    return seen;
  });
  for (int r = 0; r < 6; ++r) {
    const int pipeline = r / 3;
    const Numbers expected{
        static_cast<float>(2 - r % 3), static_cast<float>(pipeline), 3000, 2000, 1000, 21000};
    EXPECT_EQ(got[static_cast<size_t>(r)], expected) << r;
  }
}

constexpr std::chrono::seconds kTimeout{1};

// Two ranks without process groups: what ProcessGroup never does, a transport must stand.
void run_transports(int max_delay, const std::function<void(Transport&, int)>& body) {
  std::unique_ptr<SimNetwork> network;
  Scheduler scheduler(2, std::nullopt, [&] { EXPECT_TRUE(network->deliver_next()); });
  network = std::make_unique<SimNetwork>(SimulationOptions{.ranks = 2, .max_delay = max_delay},
                                         scheduler);
  scheduler.run([&](int rank) {
    SimTransport transport(*network, "world", {0, 1}, rank);
    body(transport, rank);
    transport.run({.kind = OpKind::kBarrier, .call = {.tag = 1, .timeout = kTimeout}});
  });
}

TEST(Simulation, MessagesOfOneSlotMeetInTheOrderOfPosting) {
  const Numbers data{1, 2, 3};
  Numbers received(3);
  run_transports(9, [&](Transport& transport, int rank) {
    std::vector<std::unique_ptr<Transfer>> transfers;
    for (size_t i = 0; i < data.size(); ++i)
      transfers.push_back(rank == 0 ? transport.send({&data[i], 1}, 1, 5)
                                    : transport.recv({&received[i], 1}, 0, 5));
    for (const auto& transfer : transfers) transfer->wait(kTimeout);
  });
  EXPECT_EQ(received, data);
}

// Rank `dropper` forgets its transfers and frees their memory: before they have met the other
// side's (rank 0, which runs first), or between that and the delivery (rank 1). ASan sees what goes
// wrong.
Numbers receive_from_dropper(int dropper, int max_delay) {
  Numbers received(3);
  run_transports(max_delay, [&](Transport& transport, int rank) {
    const auto data = std::make_unique<Numbers>(Numbers{1, 2, 3});
    const auto target = std::make_unique<Numbers>(3);
    const auto arrives = transport.recv(rank == dropper ? *target : received, 1 - rank, 1);
    const auto leaves = transport.send(*data, 1 - rank, 1);
    if (rank == dropper) return;
    arrives->wait(kTimeout);
    leaves->wait(kTimeout);
  });
  return received;
}

TEST(Simulation, ADroppedTransferIsSafe) {
  for (const int dropper : {0, 1})
    for (const int max_delay : {0, 50})
      EXPECT_EQ(receive_from_dropper(dropper, max_delay), (Numbers{1, 2, 3})) << dropper;
}

TEST(Simulation, ForgottenMessagesGoOnByThemselves) {
  const auto got = results({.ranks = 2, .max_delay = 10}, [](ProcessGroup& world) {
    const Tensor received = blank(4);
    if (world.rank() == 0) {
      { const Work forgotten = world.isend(tensor_of(0, 4), 1); }
      world.barrier();
    } else {
      world.barrier();
      world.recv(received, 0);
    }
    world.barrier();
    return contents(received);
  });
  EXPECT_EQ(got[1], numbers_of(0, 4));
}

TEST(Simulation, ContradictoryOptionsAreRefused) {
  const auto nothing = [](ProcessGroup&) {};
  EXPECT_THROW(simulate({.ranks = 0}, nothing), Error);
  EXPECT_THROW(simulate({.ranks = kMaxWorldSize + 1}, nothing), Error);
  EXPECT_THROW(simulate({.ranks = 2, .max_delay = -1}, nothing), Error);
  EXPECT_THROW(simulate({.ranks = 2, .death = {{.rank = 2, .operation = 1}}}, nothing), Error);
  EXPECT_THROW(simulate({.ranks = 2, .death = {{.rank = 0, .operation = 0}}}, nothing), Error);
  EXPECT_TRUE(simulate({.ranks = kMaxWorldSize}, nothing).succeeded());
}

}  // namespace
}  // namespace lab::simulation_test
