// A parameter server over TCP: workers that come, go and break off, and whatever else connects.
#include "common/comm/server/tcp_server.h"

#include <gtest/gtest.h>
#include <poll.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <map>
#include <random>
#include <thread>

#include "common/comm/server/server_link.h"
#include "common/comm/server/wire.h"
#include "common/error.h"
#include "tests/unit/error_of.h"

namespace lab::tcp_server_test {
namespace {

using tcp_store::Clock;

/// Tickets with numbers of their own for a number of items; a push counts if its ticket is leased.
struct Tickets {
  int64_t items = 20;
  int64_t next = 0;
  struct Lease {
    int worker = 0;
    int64_t item = 0;
  };
  std::map<int64_t, Lease> leases = {};
  std::map<int64_t, int> counted = {};  // by item

  ServerHooks hooks() {
    return {.pull = [this](int worker) -> std::optional<Ticket> {
              leave(worker);
              for (int64_t item = 0; item < items; ++item) {
                const bool leased = std::ranges::any_of(
                    leases, [&](const auto& lease) { return lease.second.item == item; });
                if (leased || counted.contains(item)) continue;
                leases[next] = {worker, item};
                return Ticket{.number = next++, .item = item, .version = 7};
              }
              return {};
            },
            .push =
                [this](const Push& push) {
                  const auto lease = leases.find(push.ticket);
                  if (lease == leases.end()) return;
                  ++counted[lease->second.item];
                  leases.erase(lease);
                },
            .leave = [this](int worker) { leave(worker); },
            .finished = [this] { return static_cast<int64_t>(counted.size()) == items; },
            .weights =
                [] {
                  return Tensor::from({1, 2, 3}, {3});
                }};
  }
  void leave(int worker) {
    std::erase_if(leases, [&](const auto& lease) { return lease.second.worker == worker; });
  }
};

TcpServer::Options options_of(const std::string& work = "model 1\n") {
  return {.work = work, .elements = 3};
}

/// Serves until the end, or for at most so long.
void run(TcpServer& server, double most_s = 60) {
  const auto deadline = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                           std::chrono::duration<double>(most_s));
  server.run([&] { return Clock::now() < deadline; });
}

ServerLink link_to(uint16_t port, int worker = -1, const std::string& work = "model 1\n",
                   double connect_s = 2) {
  return ServerLink(
      {.port = port, .work = work, .elements = 3, .worker = worker, .connect_s = connect_s});
}

Request push_of(const Ticket& ticket) {
  return {.kind = Request::Kind::kPush,
          .push = {.ticket = ticket.number,
                   .gradient = {.mean = Tensor::from({4, 5, 6}, {3}), .samples = 2, .loss = 0.5}}};
}

/// Works to the end, or breaks off at a random point after `steps` requests.
void work(uint16_t port, int worker, int steps, uint64_t seed) {
  std::mt19937_64 random(seed);
  ServerLink link = link_to(port, worker, "model 1\n", 0.5);
  Request request;
  for (int k = 0; k < steps; ++k) {
    const Reply reply = link.exchange(request);
    if (reply.kind == Reply::Kind::kDone) return;
    if (reply.kind == Reply::Kind::kTaken) request = {};
    if (reply.kind == Reply::Kind::kWork) request = push_of(reply.ticket);
    if (request.kind == Request::Kind::kPush && random() % 5 == 0) link.exchange(request);  // twice
  }
}

TEST(TcpServer, AWorkerGetsWeightsAndPushesToTheEnd) {
  Tickets tickets{.items = 3};
  TcpServer server(options_of(), tickets.hooks());
  std::vector<float> weights;
  std::thread worker([&] {
    ServerLink link = link_to(server.port());
    EXPECT_EQ(link.worker(), 0);
    for (int k = 0; k < 3; ++k) {
      const Reply reply = link.exchange({});
      EXPECT_EQ(reply.kind, Reply::Kind::kWork);
      EXPECT_EQ(reply.ticket.item, k);
      EXPECT_EQ(reply.ticket.version, 7);
      weights.assign(reply.weights.values().begin(), reply.weights.values().end());
      EXPECT_EQ(link.exchange(push_of(reply.ticket)).kind, Reply::Kind::kTaken);
    }
    EXPECT_EQ(link.exchange({}).kind, Reply::Kind::kDone);
  });
  run(server);
  worker.join();
  EXPECT_EQ(weights, (std::vector<float>{1, 2, 3}));
  EXPECT_EQ(tickets.counted.size(), 3U);
}

TEST(TcpServer, NothingIsLostOrCountedTwiceInAHundredSchedules) {
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    std::mt19937_64 random(seed);
    Tickets tickets{.items = 12};
    TcpServer server(options_of(), tickets.hooks());
    const uint16_t port = server.port();
    std::atomic<bool> is_over = false;
    const auto try_to_work = [port](int worker, int steps, uint64_t own) {
      try {
        work(port, worker, steps, own);
        return true;
      } catch (const Error&) {  // others have finished the run before this one has come
        return false;
      }
    };
    std::vector<std::thread> workers;
    workers.emplace_back([=, &is_over] {
      while (!is_over && !try_to_work(0, 1'000'000, seed)) {
      }
    });
    for (int w = 1; w <= 3; ++w) {
      const int steps = 1 + static_cast<int>(random() % 8);
      const uint64_t own = random();
      const bool returns = random() % 2 == 0;
      workers.emplace_back([=] {
        // Then it breaks off, with or without a ticket.
        if (try_to_work(w, steps, own) && returns) try_to_work(w, 1'000'000, own + 1);
      });
    }
    run(server);
    is_over = true;
    for (std::thread& worker : workers) worker.join();
    ASSERT_EQ(tickets.counted.size(), 12U) << seed;
    for (const auto& [item, times] : tickets.counted) ASSERT_EQ(times, 1) << seed;
  }
}

TEST(TcpServer, AnErrorOfAHookEndsTheServerAndIsNoWorkersFault) {
  Tickets tickets;
  ServerHooks hooks = tickets.hooks();
  hooks.push = [](const Push&) { fail("the disk is full"); };
  auto server = std::make_unique<TcpServer>(options_of(), std::move(hooks));
  const uint16_t port = server->port();
  std::thread worker([&] { EXPECT_THROW(work(port, -1, 100, 1), Error); });
  EXPECT_EQ(error_of([&] { run(*server); }), "the disk is full");
  EXPECT_EQ(server->take_notes(), std::vector<std::string>{"worker 0 has joined"});
  server.reset();
  worker.join();
}

TEST(TcpServer, GarbageAndForeignWorkersDisturbNobody) {
  Tickets tickets{.items = 5};
  TcpServer server(options_of(), tickets.hooks());
  const uint16_t port = server.port();
  std::string refused;
  std::thread worker([&] {
    int error = 0;
    const auto deadline = Clock::now() + std::chrono::seconds(20);
    tcp_store::Socket garbage = tcp_store::connect_to("127.0.0.1", port, deadline, error);
    tcp_store::send_some(garbage, "GET / HTTP/1.1\r\n\r\n");
    tcp_store::Socket large = tcp_store::connect_to("127.0.0.1", port, deadline, error);
    Frame hello{.kind = Frame::Kind::kHello, .payload = std::string(kMostText + 1, 'x')};
    tcp_store::send_some(large, encode(hello));
    refused = error_of([&] { link_to(port, -1, "model 2\n"); });
    std::string closed;
    for (const tcp_store::Socket* socket : {&garbage, &large})
      while (tcp_store::wait_for(*socket, POLLIN, deadline) &&
             tcp_store::receive_some(*socket, closed) >= 0) {
      }
    work(port, 0, 1'000'000, 1);
  });
  run(server);
  worker.join();
  EXPECT_EQ(tickets.counted.size(), 5U);
  EXPECT_NE(refused.find("the server has 'model 1', the worker 'model 2'"), std::string::npos)
      << refused;
  EXPECT_EQ(server.take_notes().size(), 4U);  // closed, closed, refused, joined
}

TEST(TcpServer, AWorkerEndsWhenTheServerIsGone) {
  Tickets tickets;
  auto server = std::make_unique<TcpServer>(options_of(), tickets.hooks());
  const uint16_t port = server->port();
  std::atomic<bool> has_work = false;
  std::string error;
  std::thread worker([&] {
    ServerLink link = link_to(port);
    const Reply reply = link.exchange({});
    has_work = true;
    error = error_of([&] {
      while (true) link.exchange(push_of(reply.ticket));
    });
  });
  server->run([&] { return !has_work; });
  server.reset();
  worker.join();
  EXPECT_NE(error.find("is gone: start it again with --resume"), std::string::npos) << error;
}

TEST(TcpServer, TwoWorkersOfOneNumberDoNotDriveEachOtherOut) {
  Tickets tickets{.items = 1'000'000};
  TcpServer server({.work = "model 1\n", .elements = 3, .first_free = 5}, tickets.hooks());
  std::atomic<bool> is_over = false;
  std::thread workers([&, port = server.port()] {
    ServerLink first = link_to(port, 2);
    ServerLink second = link_to(port, 2);
    EXPECT_EQ(second.exchange({}).kind, Reply::Kind::kWork);
    EXPECT_EQ(first.exchange({}).kind, Reply::Kind::kNothing) << "its number was taken over";
    EXPECT_EQ(first.exchange({}).kind, Reply::Kind::kWork);
    EXPECT_EQ(second.exchange({}).kind, Reply::Kind::kWork) << "the other has come back";
    EXPECT_EQ(first.worker(), 5);
    EXPECT_EQ(second.worker(), 2);
    EXPECT_EQ(link_to(port).worker(), 6);
    is_over = true;
  });
  server.run([&] { return !is_over; });
  workers.join();
  EXPECT_EQ(server.take_notes().at(1), "worker 2 is gone: its number was taken over");
}

TEST(TcpServer, NobodyListens) {
  Tickets tickets;
  uint16_t port = 0;
  {
    const TcpServer server(options_of(), tickets.hooks());
    port = server.port();
  }
  EXPECT_NE(error_of([&] { link_to(port); }).find("is gone"), std::string::npos);
}

}  // namespace
}  // namespace lab::tcp_server_test
