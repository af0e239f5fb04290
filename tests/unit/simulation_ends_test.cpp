// Simulated jobs that cannot go on: which rank is named, and how every rank ends.
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <stdexcept>

#include "common/comm/sim/simulation.h"
#include "common/error.h"
#include "tests/unit/simulated_job.h"

namespace lab::simulation_ends_test {
namespace {

using Kind = Diagnosis::Kind;

TEST(SimulationEnds, SendingFirstOnAllSidesIsADeadlock) {
  for (const int ranks : {2, 3, 5}) {
    const auto report = simulate({.ranks = ranks}, sends_first(0));
    ASSERT_TRUE(report.diagnosis) << ranks;
    EXPECT_EQ(report.diagnosis->kind, Kind::kDeadlock);
    auto circle = report.diagnosis->ranks;
    ASSERT_EQ(circle.size(), static_cast<size_t>(ranks)) << explain(report);
    for (size_t i = 0; i < circle.size(); ++i)
      EXPECT_EQ(circle[(i + 1) % circle.size()], (circle[i] + 1) % ranks) << explain(report);
    for (const std::string& error : report.errors) EXPECT_EQ(error, report.diagnosis->headline);
    EXPECT_FALSE(report.succeeded());
  }
}

TEST(SimulationEnds, OnlyTheCircleIsBlamed) {
  const auto report = simulate({.ranks = 4}, [](ProcessGroup& world) {
    const int r = world.rank();
    if (r == 0) return world.recv(blank(1), 1);  // waits as well, but nobody waits for it
    if (r == 3) return;
    world.send(blank(1), 3 - r);
    world.recv(blank(1), 3 - r);
  });
  ASSERT_TRUE(report.diagnosis);
  auto circle = report.diagnosis->ranks;
  std::ranges::sort(circle);
  EXPECT_EQ(circle, (std::vector<int>{1, 2})) << explain(report);
  EXPECT_EQ(report.errors[3], "");
}

TEST(SimulationEnds, ADeadlockInASubGroupNamesRanksOfTheWorld) {
  const auto report = simulate({.ranks = 4}, [](ProcessGroup& world) {
    ProcessGroup half = world.split(world.rank() / 2, 0, world.rank() < 2 ? "left" : "right");
    if (half.name() == "right") sends_first(1)(half);
  });
  ASSERT_TRUE(report.diagnosis);
  auto circle = report.diagnosis->ranks;
  std::ranges::sort(circle);
  EXPECT_EQ(circle, (std::vector<int>{2, 3}));
  EXPECT_NE(report.diagnosis->text().find("right"), std::string::npos) << explain(report);
  EXPECT_EQ(report.errors[0] + report.errors[1], "");
}

TEST(SimulationEnds, ADeadRankIsNamed) {
  // Two messages from each rank to the next; rank 1 dies at its n-th operation.
  for (const int operation : {1, 2, 3, 4}) {
    SimulationOptions options{.ranks = 4, .death = {{.rank = 1, .operation = operation}}};
    bool came_back = false;
    const auto report = simulate(options, [&](ProcessGroup& world) {
      for (int i = 0; i < 2; ++i) {
        if (world.rank() > 0) world.recv(blank(3), world.rank() - 1);
        if (world.rank() < 3) world.send(blank(3), world.rank() + 1);
      }
      came_back = came_back || world.rank() == 1;
    });
    SCOPED_TRACE(fmt::format("operation {}: {}", operation, explain(report)));
    ASSERT_TRUE(report.diagnosis);
    EXPECT_EQ(report.diagnosis->kind, Kind::kRankEnded);
    EXPECT_EQ(report.diagnosis->ranks, std::vector<int>{1});
    EXPECT_EQ(report.errors[1], fmt::format("killed at operation {}", operation));
    EXPECT_FALSE(came_back);
    EXPECT_EQ(report.snapshots[1].fate, RankFate::kKilled);
    EXPECT_EQ(report.snapshots[1].status, SIGKILL);
    EXPECT_FALSE(report.snapshots[1].left);
    EXPECT_EQ(report.errors[2], report.diagnosis->headline);
    // Rank 0 has got rid of its two messages by the time of rank 1's fourth operation.
    EXPECT_EQ(report.errors[0], operation == 4 ? "" : report.diagnosis->headline);
  }
}

// As over Gloo: an exception, and the others go on.
TEST(SimulationEnds, ADeathThatBreaksOff) {
  // Rank 2 dies at its n-th operation: its recv, its send, the barrier.
  for (const int operation : {1, 2, 3}) {
    SimulationOptions options{.ranks = 4,
                              .death = {{.rank = 2, .operation = operation, .breaks_off = true}}};
    std::vector<std::string> told(4);
    const auto report = simulate(options, [&](ProcessGroup& world) {
      const auto tell = [&](const auto& action) {
        try {
          action();
        } catch (const BrokenOff& error) {
          told[static_cast<size_t>(world.rank())] += error.what();
        }
      };
      if (world.rank() == 1) tell([&] { world.send(blank(3), 2); });
      if (world.rank() == 2) world.recv(blank(3), 1);
      if (world.rank() == 2) world.send(blank(3), 3);
      if (world.rank() == 3) tell([&] { world.recv(blank(3), 2); });
      tell([&] { world.barrier(); });
      if (world.rank() == 0) world.send(blank(3), 1);
      if (world.rank() == 1) world.recv(blank(3), 0);
    });
    SCOPED_TRACE(fmt::format("operation {}: {}", operation, explain(report)));
    EXPECT_FALSE(report.diagnosis);
    EXPECT_EQ(report.errors, (std::vector<std::string>{
                                 "", "", fmt::format("killed at operation {}", operation), ""}));
    EXPECT_EQ(told[1].find("send") != std::string::npos, operation == 1) << told[1];
    EXPECT_EQ(told[3].find("recv") != std::string::npos, operation <= 2) << told[3];
    for (const int rank : {0, 1, 3})
      EXPECT_NE(told[static_cast<size_t>(rank)].find("barrier"), std::string::npos) << rank;
  }
}

TEST(SimulationEnds, DeathInACollective) {
  const auto report =
      simulate({.ranks = 3, .death = {{.rank = 2, .operation = 3}}}, [](ProcessGroup& world) {
        for (int i = 0; i < 5; ++i) world.all_reduce(blank(3));
      });
  ASSERT_TRUE(report.diagnosis);
  EXPECT_EQ(report.diagnosis->kind, Kind::kRankEnded);
  EXPECT_EQ(report.diagnosis->ranks, std::vector<int>{2});
  EXPECT_EQ(report.history[0].size(), 2U) << "those that were done";
}

// Not even a message that both sides have posted arrives if its sender ends before it has waited.
TEST(SimulationEnds, AMessageUnderWayIsLostWithItsSender) {
  for (const bool dies : {false, true}) {
    SimulationOptions options{.ranks = 2};
    if (dies) options.death = {.rank = 0, .operation = 2};
    const auto report = simulate(options, [&](ProcessGroup& world) {
      if (world.rank() == 1) return world.recv(blank(1), 0);
      const Work forgotten = world.isend(blank(1), 1);
      if (dies) world.barrier();
    });
    ASSERT_TRUE(report.diagnosis) << dies;
    EXPECT_EQ(report.diagnosis->kind, Kind::kRankEnded) << explain(report);
    EXPECT_EQ(report.diagnosis->ranks, std::vector<int>{0});
  }
}

TEST(SimulationEnds, ADeathThatNobodyWaitsForIsNoDeadlock) {
  const auto report =
      simulate({.ranks = 2, .death = {{.rank = 1, .operation = 2}}}, [](ProcessGroup& world) {
        world.barrier();
        if (world.rank() == 1) world.barrier();
      });
  EXPECT_FALSE(report.diagnosis) << explain(report);
  EXPECT_EQ(report.errors[0], "");
  EXPECT_EQ(report.errors[1], "killed at operation 2");
  EXPECT_FALSE(report.succeeded());
}

TEST(SimulationEnds, ARankThatReturnsEarlyIsNamed) {
  const auto report = simulate({.ranks = 3}, [](ProcessGroup& world) {
    world.barrier();
    if (world.rank() != 2) world.barrier();
  });
  ASSERT_TRUE(report.diagnosis);
  EXPECT_EQ(report.diagnosis->kind, Kind::kRankEnded);
  EXPECT_EQ(report.diagnosis->ranks, std::vector<int>{2}) << explain(report);
  EXPECT_EQ(report.snapshots[2].fate, RankFate::kExited);
  EXPECT_EQ(report.snapshots[2].status, 0);
  EXPECT_TRUE(report.snapshots[2].left);
  EXPECT_EQ(report.errors[2], "");
}

TEST(SimulationEnds, AnExceptionEndsOneRankAndThoseThatWaitForIt) {
  const auto report = simulate({.ranks = 4}, [](ProcessGroup& world) {
    if (world.rank() == 1) throw std::runtime_error("the loss is not a number");
    if (world.rank() == 0) world.recv(blank(1), 1);
    if (world.rank() == 2) world.send(blank(1), 3);
    if (world.rank() == 3) world.recv(blank(1), 2);
  });
  ASSERT_TRUE(report.diagnosis);
  EXPECT_EQ(report.diagnosis->kind, Kind::kRankEnded);
  EXPECT_EQ(report.diagnosis->ranks, std::vector<int>{1});
  EXPECT_EQ(report.errors, (std::vector<std::string>{report.diagnosis->headline,
                                                     "the loss is not a number", "", ""}));
  EXPECT_EQ(report.snapshots[1].status, 1);
  EXPECT_FALSE(report.snapshots[1].left);
}

TEST(SimulationEnds, ExceptionsAloneAreNoDeadlock) {
  const auto report = simulate({.ranks = 2}, [](ProcessGroup& world) {
    if (world.rank() == 0) fail("rank {} has had enough", world.rank());
    throw 7;
  });
  EXPECT_FALSE(report.diagnosis);
  EXPECT_EQ(report.errors,
            (std::vector<std::string>{"rank 0 has had enough", "an exception of unknown type"}));
}

TEST(SimulationEnds, WhoCatchesEverythingEndsAllTheSame) {
  int caught = 0;
  const auto report = simulate({.ranks = 2}, [&](ProcessGroup& world) {
    for (int i = 0; i < 3; ++i) try {
        world.recv(blank(1), 1 - world.rank());
      } catch (const std::exception&) {
        ADD_FAILURE() << "the end is no std::exception";
      } catch (...) {
        ++caught;
      }
  });
  EXPECT_EQ(caught, 6);
  ASSERT_TRUE(report.diagnosis);
  EXPECT_EQ(report.diagnosis->kind, Kind::kDeadlock);
  EXPECT_FALSE(report.succeeded());
}

void expect_mismatch(const std::function<void(ProcessGroup&)>& body) {
  const auto report = simulate({.ranks = 2}, body);
  ASSERT_TRUE(report.diagnosis);
  EXPECT_EQ(report.diagnosis->kind, Kind::kMismatch) << explain(report);
  for (const std::string& error : report.errors) EXPECT_EQ(error, report.diagnosis->headline);
}

TEST(SimulationEnds, MismatchesAreExplained) {
  expect_mismatch([](ProcessGroup& world) {
    world.rank() == 0 ? world.send(blank(3), 1) : world.recv(blank(4), 0);
  });
  expect_mismatch([](ProcessGroup& world) {
    world.rank() == 0 ? world.send(blank(3), 1, 4) : world.recv(blank(3), 0, 5);
  });
  expect_mismatch([](ProcessGroup& world) { world.all_reduce(blank(3 + world.rank())); });
  expect_mismatch([](ProcessGroup& world) {
    world.rank() == 0 ? world.all_reduce(blank(3)) : world.broadcast(blank(3));
  });
}

}  // namespace
}  // namespace lab::simulation_ends_test
