// The clock of a simulation with a cost model, in cases computed by hand. All costs are sums of
// powers of two: times must be exact.
#include <gtest/gtest.h>

#include "common/comm/combine.h"
#include "common/error.h"
#include "common/pipeline/drawing/draw.h"
#include "common/run/timeline/recorded_timeline.h"
#include "tests/unit/error_of.h"
#include "tests/unit/simulated_job.h"

namespace lab::simulation_time_test {
namespace {

using Times = std::vector<double>;

// A float takes 1/2 + 4/8 = 1 s, three floats 2 s.
constexpr LinkCost kLink{.alpha = 0.5, .beta = 0.125};
constexpr CostModel kCosts{.inside = kLink, .gamma = 0.25};

SimulationReport run(int ranks, const std::function<void(ProcessGroup&)>& body,
                     const CostModel& costs = kCosts) {
  SimulationReport report = simulate({.ranks = ranks, .costs = costs}, body);
  EXPECT_TRUE(report.succeeded()) << explain(report);
  return report;
}

TEST(SimulationTime, AMessageTakesAlphaAndBetaForEachByte) {
  const auto report = run(2, [](ProcessGroup& world) {
    if (world.rank() == 0) world.send(blank(3), 1);
    if (world.rank() == 1) world.recv(blank(3), 0);
    if (world.rank() == 0) world.send(blank(0), 1);  // alpha
    if (world.rank() == 1) world.recv(blank(0), 0);
  });
  EXPECT_EQ(report.times->finish, (Times{2.5, 2.5}));
  EXPECT_EQ(report.times->exposed, (Times{2.5, 2.5}));
  EXPECT_EQ(report.times->makespan, 2.5);
  EXPECT_EQ(report.times->bytes(0, 1), 12);
  EXPECT_EQ(report.times->bytes(1, 0), 0);
}

TEST(SimulationTime, ASendWaitsForALateReceiver) {
  const auto report = run(2, [](ProcessGroup& world) {
    if (world.rank() == 1) world.advance_clock(4);
    if (world.rank() == 0) world.send(blank(3), 1);
    if (world.rank() == 1) world.recv(blank(3), 0);
  });
  EXPECT_EQ(report.times->finish, (Times{6, 6}));
  EXPECT_EQ(report.times->exposed, (Times{6, 2}));
}

TEST(SimulationTime, ARankSendsAndReceivesAtTheSameTime) {
  const auto report = run(3, [](ProcessGroup& world) {
    Work sent = world.isend(blank(3), (world.rank() + 1) % 3);
    world.recv(blank(3), (world.rank() + 2) % 3);
    sent.wait();
  });
  EXPECT_EQ(report.times->finish, (Times{2, 2, 2}));
}

TEST(SimulationTime, ARankReceivesOneMessageAtATime) {
  const auto report = run(3, [](ProcessGroup& world) {
    if (world.rank() > 0) return world.send(blank(3), 0);
    Work last = world.irecv(blank(3), 2);
    world.recv(blank(3), 1);
    last.wait();
  });
  EXPECT_EQ(report.times->finish, (Times{4, 2, 4}));  // both could start: the lower sender does
}

TEST(SimulationTime, ARankSendsOneMessageAtATimeInTheOrderOfPosting) {
  const auto report = run(3, [](ProcessGroup& world) {
    if (world.rank() > 0) return world.recv(blank(3), 0);
    Work first = world.isend(blank(3), 2);
    world.send(blank(3), 1);
    first.wait();
  });
  EXPECT_EQ(report.times->finish, (Times{4, 4, 2}));
}

TEST(SimulationTime, AMessageWhoseReceiverIsLateLetsOthersPass) {
  const auto report = run(3, [](ProcessGroup& world) {
    if (world.rank() == 2) world.advance_clock(1);
    if (world.rank() > 0) return world.recv(blank(3), 0);
    Work first = world.isend(blank(3), 2);
    world.send(blank(3), 1);
    first.wait();
  });
  EXPECT_EQ(report.times->finish, (Times{4, 2, 4}));
}

TEST(SimulationTime, WhatTravelsWhileARankComputesIsNotExposed) {
  for (const double seconds : {5.0, 0.5}) {
    const auto report = run(2, [&](ProcessGroup& world) {
      Work work = world.rank() == 0 ? world.isend(blank(3), 1) : world.irecv(blank(3), 0);
      world.advance_clock(seconds);
      work.wait();
    });
    const double end = std::max(seconds, 2.0);
    EXPECT_EQ(report.times->finish, (Times{end, end}));
    EXPECT_EQ(report.times->exposed, (Times{end - seconds, end - seconds}));
    ASSERT_EQ(report.times->traffic.size(), 1U);
    EXPECT_EQ(report.times->traffic[0].start, 0);
    EXPECT_EQ(report.times->traffic[0].end, 2);
  }
}

TEST(SimulationTime, LinksBetweenHostsAreSlower) {
  const CostModel costs{.inside = kLink, .between = {.alpha = 8, .beta = 1}, .ranks_per_host = 2};
  const auto report = run(
      4,
      [](ProcessGroup& world) {
        Work sent = world.isend(blank(1), (world.rank() + 1) % 4);
        world.recv(blank(1), (world.rank() + 3) % 4);
        sent.wait();
      },
      costs);
  EXPECT_EQ(report.times->finish, (Times{12, 12, 12, 12}));
  EXPECT_EQ(report.times->traffic[0].end, 1);
  EXPECT_EQ(report.times->bytes(1, 2), 4);
}

TEST(SimulationTime, CollectivesCostARing) {
  const auto time = [](const std::function<void(ProcessGroup&)>& body) {
    const auto report = run(3, body);
    EXPECT_EQ(report.times->finish, Times(3, report.times->makespan));
    return report.times->makespan;
  };
  EXPECT_EQ(time([](ProcessGroup& world) { world.all_reduce(blank(9)); }), 4 * 2);
  EXPECT_EQ(time([](ProcessGroup& world) { world.broadcast(blank(9)); }), 4 * 2);
  EXPECT_EQ(time([](ProcessGroup& world) { world.all_gather(blank(9), blank(3)); }), 2 * 2);
  EXPECT_EQ(time([](ProcessGroup& world) { world.reduce_scatter(blank(3), blank(9)); }), 2 * 2);
  EXPECT_EQ(time([](ProcessGroup& world) { world.barrier(); }), 4 * 0.5);
  const auto report = run(3, [](ProcessGroup& world) {
    world.advance_clock(world.rank());
    world.all_reduce(blank(9));
  });
  EXPECT_EQ(report.times->finish, (Times{10, 10, 10})) << "it begins when the last rank is there";
  EXPECT_EQ(report.times->exposed, (Times{10, 9, 8}));
  EXPECT_EQ(report.times->bytes(2, 0), 4 * 12);
}

TEST(SimulationTime, AdditionsCostGammaAlsoWhereARankIsAlone) {
  const auto report = run(2, [](ProcessGroup& world) {
    const ProcessGroup alone = world.split(world.rank(), 0);  // an all_gather of 16 bytes: 2.5 s
    const Tensor sum = tensor_of(0, 4);
    combine(alone, sum, tensor_of(1, 4), ReduceOp::kSum);
    EXPECT_EQ(sum.data()[3], 3006);
    combine(alone, sum, tensor_of(1, 4), ReduceOp::kMin);
    EXPECT_EQ(sum.data()[3], 2003);
    combine(alone, sum, tensor_of(0, 4), ReduceOp::kMax);
    EXPECT_EQ(sum.data()[3], 2003);
  });
  EXPECT_EQ(report.times->finish, (Times{2.5 + 3, 2.5 + 3}));
  EXPECT_EQ(report.times->exposed, (Times{2.5, 2.5}));
}

TEST(SimulationTime, NoTimeDependsOnTheOrderOfThreads) {
  const auto body = [](ProcessGroup& world) {
    const int n = world.size();
    for (int round = 0; round < 3; ++round) {
      std::vector<Work> works;
      for (int i = 1; i < n; ++i) {
        works.push_back(world.isend(blank(1 + world.rank()), (world.rank() + i) % n, i));
        works.push_back(
            world.irecv(blank(1 + (world.rank() + n - i) % n), (world.rank() + n - i) % n, i));
      }
      world.advance_clock(0.25 * ((world.rank() * 5 + round) % n));
      wait_all(works);
    }
  };
  const auto expected = run(5, body);
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    const auto report =
        simulate({.ranks = 5, .seed = seed, .shuffle_ranks = true, .costs = kCosts}, body);
    EXPECT_EQ(report.times->finish, expected.times->finish) << "seed " << seed;
    EXPECT_EQ(report.times->exposed, expected.times->exposed) << "seed " << seed;
  }
}

TEST(SimulationTime, TheGridShowsWaitingAndComputing) {
  const auto report = run(2, [](ProcessGroup& world) {
    if (world.rank() == 0) world.send(blank(3), 1);
    if (world.rank() == 1) world.recv(blank(3), 0);
    if (world.rank() == 1) combine(world, blank(8), blank(8), ReduceOp::kSum);
  });
  const Timeline timeline = simulated_timeline(report);
  ASSERT_EQ(timeline.ranks[1].spans.size(), 2U);
  EXPECT_EQ(timeline.ranks[1].spans[0].kind, SpanKind::kRecv);
  EXPECT_EQ(timeline.ranks[1].spans[0].end, 2);
  EXPECT_EQ(timeline.ranks[1].spans[1].kind, SpanKind::kAdd);
  EXPECT_EQ(timeline.ranks[1].spans[1].end, 4);
  EXPECT_EQ(makespan(timeline), report.times->makespan);
  const std::string grid = draw_grid(timeline, {.width = 60});
  EXPECT_NE(grid.find("rank 1 |<<<<"), std::string::npos) << grid;
  EXPECT_NE(grid.find("+ adds"), std::string::npos) << grid;
}

TEST(SimulationTime, DeadlocksAndDeathsAreStillFound) {
  const SimulationReport report = simulate({.ranks = 3, .costs = kCosts}, sends_first(10));
  ASSERT_TRUE(report.diagnosis);
  EXPECT_EQ(report.diagnosis->kind, Diagnosis::Kind::kDeadlock);
  const SimulationReport death = simulate(
      {.ranks = 2, .death = SimulationOptions::Death{.rank = 1, .operation = 1}, .costs = kCosts},
      [](ProcessGroup& world) { world.barrier(); });
  EXPECT_TRUE(death.diagnosis);
}

TEST(SimulationTime, WithoutACostModelThereAreNoTimes) {
  const auto report = simulate({.ranks = 2}, [](ProcessGroup& world) {
    EXPECT_EQ(world.costs(), nullptr);
    world.advance_clock(5);
    world.barrier();
  });
  EXPECT_FALSE(report.times);
  EXPECT_LT(report.history[0].back().done_ns, 10);
}

TEST(SimulationTime, RefusesWhatContradictsIt) {
  const auto nothing = [](ProcessGroup&) {};
  EXPECT_NE(error_of([&] {
              simulate({.ranks = 2, .max_delay = 1, .costs = kCosts}, nothing);
            }).find("with a cost model"),
            std::string::npos);
  EXPECT_NE(error_of([&] {
              simulate({.buffered_bytes = 4, .costs = kCosts}, nothing);
            }).find("with a cost model"),
            std::string::npos);
  const auto report =
      simulate({.ranks = 1, .costs = kCosts}, [](ProcessGroup& world) { world.advance_clock(-1); });
  EXPECT_EQ(report.errors[0], "advance_clock: -1 s, less than 0");
}

}  // namespace
}  // namespace lab::simulation_time_test
