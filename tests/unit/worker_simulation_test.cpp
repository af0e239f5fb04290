// The queue of events around a parameter server.
#include "common/comm/server/worker_simulation.h"

#include <gtest/gtest.h>

#include <map>
#include <memory>

#include "common/error.h"

namespace lab::worker_simulation_test {
namespace {

using Kind = SimulatedEvent::Kind;

/// The simplest server: `items` tickets, one after the other, no bound; those of a worker that is
/// gone are handed out again.
struct Counter {
  int64_t items = 6;
  int64_t next = 0;
  std::map<int64_t, int> leases = {};  // item, worker
  std::map<int64_t, int> taken = {};   // item, how often
  std::vector<int> left = {};

  ServerHooks hooks() {
    return {.pull = [this](int worker) -> std::optional<Ticket> {
              leave(worker);
              for (int64_t item = 0; item < items; ++item)
                if (!leases.contains(item) && !taken.contains(item)) {
                  leases[item] = worker;
                  return Ticket{.number = item, .item = item, .version = 0};
                }
              return {};
            },
            .push =
                [this](const Push& push) {
                  if (leases.erase(push.ticket) > 0) ++taken[push.ticket];
                },
            .leave =
                [this](int worker) {
                  left.push_back(worker);
                  leave(worker);
                },
            .finished = [this] { return static_cast<int64_t>(taken.size()) == items; },
            .weights = [] { return Tensor::zeros({1}); }};
  }
  void leave(int worker) {
    std::erase_if(leases, [&](const auto& lease) { return lease.second == worker; });
  }
};

/// Pulls, pushes, and repeats what has no answer.
WorkerLogic make_worker(int) {
  auto last = std::make_shared<Request>();
  return [last](const Reply& reply) {
    if (reply.kind == Reply::Kind::kWork)
      *last = {.kind = Request::Kind::kPush, .push = {.ticket = reply.ticket.number}};
    if (reply.kind == Reply::Kind::kTaken) *last = {};
    if (reply.kind == Reply::Kind::kDone) *last = {.kind = Request::Kind::kStop};
    return *last;
  };
}

TEST(WorkerSimulation, TimesAreComputationsAndMessages) {
  Counter server{.items = 2};
  const WorkerSimulationReport report =
      simulate_workers({.workers = {{.number = 0, .compute_s = 2}},
                        .link = {.alpha = 0.25, .beta = 0.5},
                        .bytes = 1},
                       server.hooks(), make_worker);
  // Pull 0.25, weights 0.75, compute 2, push 0.75, answer 0.25; the second push ends the run.
  EXPECT_TRUE(report.finished);
  EXPECT_DOUBLE_EQ(report.seconds, 2 * (0.25 + 0.75 + 2 + 0.75) + 0.25);
}

TEST(WorkerSimulation, TheServerSendsOneMessageAtATime) {
  Counter server{.items = 2};
  const WorkerSimulationReport report =
      simulate_workers({.workers = {{.number = 0, .compute_s = 1}, {.number = 1, .compute_s = 1}},
                        .link = {.alpha = 0, .beta = 1},
                        .bytes = 3},
                       server.hooks(), make_worker);
  EXPECT_DOUBLE_EQ(report.seconds, 3 + 3 + 1 + 3);  // the second worker's weights wait
}

TEST(WorkerSimulation, ASlowWorkerTakesLess) {
  Counter server{.items = 40};
  const WorkerSimulationReport report =
      simulate_workers({.workers = {{.number = 0, .compute_s = 1}, {.number = 1, .compute_s = 3}}},
                       server.hooks(), make_worker);
  std::map<int, int> pushed;
  for (const SimulatedEvent& event : report.events)
    if (event.kind == Kind::kPushed) ++pushed[event.worker];
  EXPECT_EQ(pushed[0], 30);
  EXPECT_EQ(pushed[1], 10);
  EXPECT_DOUBLE_EQ(report.seconds, 30);
}

TEST(WorkerSimulation, AKilledWorkersItemIsComputedByAnother) {
  Counter server{.items = 4};
  const WorkerSimulationReport report = simulate_workers(
      {.workers = {{.number = 0, .compute_s = 1}, {.number = 1, .compute_s = 9, .killed_at = 2}},
       .notice_s = 3,
       .seed = 5},
      server.hooks(), make_worker);
  EXPECT_TRUE(report.finished);
  EXPECT_EQ(server.left, std::vector<int>{1});
  for (int64_t item = 0; item < 4; ++item) EXPECT_EQ(server.taken[item], 1);
}

TEST(WorkerSimulation, NobodyIsLeft) {
  Counter server;
  const WorkerSimulationReport report = simulate_workers(
      {.workers = {{.number = 0, .compute_s = 1, .killed_at = 2.5}}}, server.hooks(), make_worker);
  EXPECT_FALSE(report.finished);
  EXPECT_EQ(server.taken.size(), 2U);
}

TEST(WorkerSimulation, AWorkerThatComesBackReplacesItself) {
  Counter server{.items = 5};
  const WorkerSimulationReport report =
      simulate_workers({.workers = {{.number = 3, .compute_s = 1, .killed_at = 1.5},
                                    {.number = 3, .compute_s = 1, .begins_at = 2}},
                        .notice_s = 100},
                       server.hooks(), make_worker);
  EXPECT_TRUE(report.finished);
  EXPECT_TRUE(server.left.empty());  // the news of its death comes too late
}

TEST(WorkerSimulation, LostAndLateMessagesAreRepeatedAndTheSeedRepeatsTheRun) {
  std::vector<double> seconds;
  for (const uint64_t seed : {1, 2, 1}) {
    Counter server{.items = 30};
    const WorkerSimulationReport report =
        simulate_workers({.workers = {{.number = 0}, {.number = 1}, {.number = 2}},
                          .jitter = 0.5,
                          .late_s = 2,
                          .lost = 0.2,
                          .patience_s = 3,
                          .false_alarms = 0.1,
                          .seed = seed},
                         server.hooks(), make_worker);
    EXPECT_TRUE(report.finished);
    for (const auto& [item, times] : server.taken) EXPECT_EQ(times, 1);
    seconds.push_back(report.seconds);
  }
  EXPECT_EQ(seconds[0], seconds[2]);
  EXPECT_NE(seconds[0], seconds[1]);
}

TEST(WorkerSimulation, WhatNeverEndsIsEnded) {
  Counter server;
  ServerHooks hooks = server.hooks();
  hooks.pull = [](int) -> std::optional<Ticket> { return Ticket{}; };
  hooks.push = [](const Push&) {};
  EXPECT_THROW(
      simulate_workers({.workers = {{.number = 0}}, .most_events = 1000}, hooks, make_worker),
      Error);
}

}  // namespace
}  // namespace lab::worker_simulation_test
