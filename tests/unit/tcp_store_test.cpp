// TcpStoreServer: nobody can disturb it, or one client through it.
#include "common/comm/store/tcp_store.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <future>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "common/error.h"
#include "tests/unit/error_of.h"
#include "tests/unit/tcp_store_peer.h"

namespace lab::tcp_store_test {
namespace {

using namespace std::chrono_literals;
using tcp_store::Kind;

constexpr auto kPatience = 20s;
const std::string kLoopback = "127.0.0.1";

std::string request(Kind kind, const std::string& key, const std::string& value = "") {
  return tcp_store::encode({kind, key, value});
}

/// A server and a client who must not notice what others do to the server.
class TcpStoreTest : public testing::Test {
 protected:
  void start(const TcpStoreLimits& limits = {}) {
    client_.reset();
    server_ = std::make_unique<TcpStoreServer>(kLoopback, 0, limits);
    client_ = std::make_unique<TcpStore>(kLoopback, server_->port(), kPatience);
  }
  void SetUp() override { start(); }
  void TearDown() override {
    if (!server_) return;
    client_->set("end", "well");
    EXPECT_EQ(TcpStore(kLoopback, server_->port(), kPatience).try_get("end"), "well");
  }

  /// A connection that has greeted.
  TcpPeer peer() {
    TcpPeer peer(server_->port());
    if (!peer.greet()) throw std::runtime_error("the server did not greet");
    return peer;
  }

  std::string gone() const {
    return fmt::format("the store at {}:{} is gone: did rank 0 end?", kLoopback, port_);
  }
  void stop_server() {
    port_ = server_->port();
    server_.reset();
  }

  std::unique_ptr<TcpStoreServer> server_;
  std::unique_ptr<TcpStore> client_;
  uint16_t port_ = 0;
};

TEST_F(TcpStoreTest, SharesValuesWithItsOwnProcess) {
  auto waits = std::async(std::launch::async, [&] { return client_->get("a", kPatience); });
  server_->store().set("a", "1");
  EXPECT_EQ(waits.get(), "1");
  auto counts = std::async(std::launch::async, [&] { return client_->get("b", kPatience); });
  server_->store().add("b", 7);
  EXPECT_EQ(counts.get(), "7");
  EXPECT_EQ(client_->add("b", 1), 8);
  client_->set("c", "2");
  EXPECT_EQ(server_->store().get("c", 0ms), "2");
}

TEST_F(TcpStoreTest, DisconnectsRandomBytes) {
  std::mt19937 random(1);
  for (int i = 0; i < 20; ++i) {
    std::string bytes;
    for (int byte = 0; byte < 4096; ++byte) bytes += static_cast<char>(random());
    TcpPeer peer(server_->port());
    peer.send(bytes);
    EXPECT_TRUE(peer.is_disconnected());
  }
}

TEST_F(TcpStoreTest, DisconnectsRandomBytesAfterAGreeting) {
  std::mt19937 random(2);
  for (int i = 0; i < 20; ++i) {
    std::string bytes;
    for (int byte = 0; byte < 4096; ++byte) bytes += static_cast<char>(random());
    bytes[5] = '\x7f';  // the size of a value: too large, whatever else it is
    TcpPeer other = peer();
    other.send(bytes);
    EXPECT_TRUE(other.is_disconnected());
  }
}

TEST_F(TcpStoreTest, DisconnectsABrowser) {
  TcpPeer browser(server_->port());
  browser.send("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_TRUE(browser.is_disconnected());
}

TEST_F(TcpStoreTest, DisconnectsBadMessages) {
  const std::string good = request(Kind::kSet, "key", "value");
  std::string large_key = good;
  large_key[3] = '\x04';  // 1024 + 3
  std::string large_value = good;
  large_value[6] = '\x10';  // 1 MiB + 5
  std::string huge = good;
  huge.replace(1, 8, "\xff\xff\xff\xff\xff\xff\xff\xff");
  const std::vector<std::string> messages = {
      large_key,
      large_value,
      huge,
      std::string(1, '\0'),
      std::string(1, '\x63'),
      std::string(1, '\xff'),
      request(Kind::kValue, "", "1"),
      request(Kind::kRefused, "", ""),
      request(Kind::kAdd, "count", ""),
      request(Kind::kGet, "count", "soon"),
      request(Kind::kAdd, "count", "1 "),
      request(Kind::kAdd, "count", "99999999999999999999"),
  };
  for (size_t i = 0; i < messages.size(); ++i) {
    TcpPeer other = peer();
    other.send(messages[i]);
    EXPECT_TRUE(other.is_disconnected()) << "message " << i;
  }
  EXPECT_EQ(client_->try_get("key"), std::nullopt);
  EXPECT_EQ(client_->try_get("count"), std::nullopt);
}

TEST_F(TcpStoreTest, DisconnectsWhoSaysTooLittle) {
  start({.greeting = 50ms, .message = 50ms});
  TcpPeer mute(server_->port());
  TcpPeer half_greeting(server_->port());
  half_greeting.send(tcp_store::greeting(tcp_store::kClientMagic).substr(0, 7));
  TcpPeer half_request = peer();
  half_request.send(request(Kind::kSet, "key", "value").substr(0, 15));
  TcpPeer trickle = peer();
  bool taken = true;  // one byte, one answer of the server to others, and so on
  const std::string long_request = request(Kind::kSet, "key", std::string(100'000, 'x'));
  for (size_t i = 0; taken && i < long_request.size(); ++i) {
    taken = trickle.send(long_request.substr(i, 1));
    client_->try_get("key");
  }
  EXPECT_TRUE(mute.is_disconnected());
  EXPECT_TRUE(half_greeting.is_disconnected());
  EXPECT_TRUE(half_request.is_disconnected());
  EXPECT_FALSE(taken);
  EXPECT_EQ(client_->try_get("key"), std::nullopt);
}

TEST_F(TcpStoreTest, KeepsClientsThatAreIdleOrWait) {
  start({.greeting = 50ms, .message = 50ms});
  TcpPeer idle = peer();
  auto waiting = std::async(std::launch::async, [&] { return client_->get("late", kPatience); });
  EXPECT_TRUE(TcpPeer(server_->port()).is_disconnected());  // 50 ms have passed
  client_->set("late", "1");
  idle.send(request(Kind::kGet, "late", "0"));
  const std::string reply = tcp_store::encode({.value = "1"});
  EXPECT_EQ(waiting.get(), "1");
  EXPECT_EQ(idle.receive(reply.size()), reply);
}

TEST_F(TcpStoreTest, IsNotBlockedByWhoReadsNothing) {
  start({.message = 200ms});
  const std::string value(kMaxStoreValue, 'v');
  client_->set("large", value);
  const std::string one = request(Kind::kGet, "large", "0");
  TcpPeer lazy = peer();
  for (int i = 0; i < 64; ++i) lazy.send(one);
  EXPECT_TRUE(lazy.wait_until_readable());
  EXPECT_TRUE(client_->get("large", kPatience) == value);

  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  while (lazy.send(one)) {  // until it is disconnected
    ASSERT_LT(std::chrono::steady_clock::now(), deadline);
    TcpPeer slow = peer();
    slow.send(request(Kind::kSet, "key", "value").substr(0, 5));
    EXPECT_TRUE(slow.is_disconnected());
  }
}

/// However long a client says that it will wait, the server looks whether it is still there.
TEST_F(TcpStoreTest, KeepsNobodyWaitingForLong) {
  TcpPeer patient = peer();
  patient.send(request(Kind::kGet, "never", std::to_string(INT64_MAX)));
  const std::string reply = tcp_store::encode({.kind = Kind::kAbsent});
  EXPECT_EQ(patient.receive(reply.size()), reply);
}

TEST_F(TcpStoreTest, WaitsLongerThanTheServerDoes) {
  const auto longer = tcp_store::kLongestWait + 100ms;
  EXPECT_THROW(client_->get("never", longer), StoreTimeout);
  auto waits = std::async(std::launch::async, [&] { return client_->get("late", kPatience); });
  EXPECT_EQ(waits.wait_for(longer), std::future_status::timeout);
  server_->store().set("late", "1");
  EXPECT_EQ(waits.get(), "1");
}

TEST_F(TcpStoreTest, AnswersManyRequestsAtOnce) {
  constexpr size_t kRequests = 20;
  const std::string value(100'000, 'v');
  client_->set("large", value);
  std::string requests = request(Kind::kGet, "nobody sets it", "1");
  std::string replies = tcp_store::encode({.kind = Kind::kAbsent});
  for (size_t i = 0; i < kRequests; ++i) {
    requests += request(Kind::kGet, "large", "1000");
    replies += tcp_store::encode({.value = value});
  }
  TcpPeer eager = peer();
  eager.send(requests);
  EXPECT_TRUE(eager.receive(replies.size()) == replies);
}

TEST_F(TcpStoreTest, TakesThreeHundredConnections) {
  std::vector<TcpPeer> crowd;
  for (int i = 0; i < 300; ++i) crowd.emplace_back(server_->port());
  EXPECT_TRUE(crowd.back().is_disconnected());
  EXPECT_TRUE(crowd[260].is_disconnected());
  EXPECT_TRUE(crowd[254].greet());  // with the client there are 256
  client_->set("key", "value");
  auto newcomer = std::async(std::launch::async, [&] {
    return TcpStore(kLoopback, server_->port(), kPatience).get("key", kPatience);
  });
  crowd.clear();
  EXPECT_EQ(newcomer.get(), "value");
}

TEST_F(TcpStoreTest, ForgetsClientsThatLeave) {
  start({.connections = 2});
  for (int i = 0; i < 10; ++i) {
    // There is room for one more, as soon as the one before is gone.
    const auto deadline = std::chrono::steady_clock::now() + kPatience;
    std::optional<TcpPeer> last;
    for (bool greeted = false; !greeted; greeted = last->greet()) {
      ASSERT_LT(std::chrono::steady_clock::now(), deadline);
      last.emplace(server_->port());
    }
    last->send(request(Kind::kGet, "never", "50"));
    last->send(request(Kind::kSet, "half", "value").substr(0, 15));
    if (i % 2 == 0) last->reset();
  }
  EXPECT_EQ(client_->try_get("half"), std::nullopt);
}

TEST_F(TcpStoreTest, SurvivesClientsThatAreKilled) {
  std::optional<TcpPeer> half = peer();
  half->send(request(Kind::kSet, "half", "value").substr(0, 15));
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);
    while (true) pause();
  }
  half.reset();  // the child still has it
  kill(child, SIGKILL);
  EXPECT_EQ(waitpid(child, nullptr, 0), child);
  EXPECT_EQ(client_->try_get("half"), std::nullopt);
}

/// The value may come just when the client gives up.
TEST_F(TcpStoreTest, TakesNoLateAnswerForAnother) {
  for (int i = 0; i < 30; ++i) {
    const std::string late = "late" + std::to_string(i);
    auto setting = std::async(std::launch::async, [&] { server_->store().set(late, "late"); });
    try {
      EXPECT_EQ(client_->get(late, 0ms), "late");
    } catch (const StoreTimeout&) {
    }
    setting.get();
    EXPECT_EQ(client_->add("count", 1), i + 1);
    EXPECT_EQ(client_->get(late, 0ms), "late");
  }
}

TEST_F(TcpStoreTest, RefusesAPortInUse) {
  const uint16_t port = server_->port();
  EXPECT_EQ(error_of([&] { TcpStoreServer(kLoopback, port); }),
            fmt::format("port {} of 127.0.0.1 is in use: another job? choose another with "
                        "--master-port",
                        port));
}

TEST_F(TcpStoreTest, ListensAgainAtOnceWhereAServerWas) {
  stop_server();
  server_ = std::make_unique<TcpStoreServer>(kLoopback, port_);
  // The old client must not mistake another job's store for its own.
  EXPECT_EQ(error_of([&] { client_->try_get("a"); }), gone());
  client_ = std::make_unique<TcpStore>(kLoopback, port_, kPatience);
}

TEST_F(TcpStoreTest, ClientsThatWaitLearnThatTheServerHasEnded) {
  std::vector<std::future<std::string>> clients;
  for (const std::string name : {"a", "b", "c", "d"})
    clients.push_back(std::async(std::launch::async, [this, name] {
      client_->set(name, "here");
      return error_of([&] { client_->get("never", kPatience); });
    }));
  for (const std::string name : {"a", "b", "c", "d"}) client_->get(name, kPatience);
  stop_server();
  const auto begin = std::chrono::steady_clock::now();
  for (auto& client : clients) EXPECT_EQ(client.get(), gone());
  EXPECT_EQ(error_of([&] { client_->set("a", "1"); }), gone());
  EXPECT_EQ(error_of([&] { client_->try_get("a"); }), gone());
  EXPECT_EQ(error_of([&] { client_->add("a", 1); }), gone());
  EXPECT_EQ(error_of([&] { client_->get("a", 0ms); }), gone());
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 5s);
}

/// A rank must not fail because rank 0, which has waited for its value, ends before it has replied.
TEST(TcpStoreEndTest, RepliesToWhatItHasDone) {
  for (int i = 0; i < 100; ++i) {
    auto server = std::make_unique<TcpStoreServer>(kLoopback, 0);
    TcpStore client(kLoopback, server->port(), kPatience);
    auto sets = std::async(std::launch::async, [&] { client.set("last", "value"); });
    server->store().get("last", kPatience);
    server.reset();
    EXPECT_NO_THROW(sets.get());
  }
}

TEST(TcpStoreAddressTest, ServesIPv6) {
  std::optional<TcpStoreServer> server;
  try {
    server.emplace("::1", 0);
  } catch (const Error& error) {
    GTEST_SKIP() << "no IPv6 here: " << error.what();
  }
  TcpStore("::1", server->port(), kPatience).set("a", "1");
  EXPECT_EQ(server->store().try_get("a"), "1");
  const uint16_t port = server->port();
  EXPECT_PRED2(contains, error_of([&] { TcpStoreServer("::1", port); }),
               fmt::format("port {} of ::1", port));
}

TEST(TcpStoreAddressTest, ServesNames) {
  TcpStoreServer server("localhost", 0);
  TcpStore("localhost", server.port(), kPatience).set("a", "1");
  EXPECT_EQ(server.store().try_get("a"), "1");
}

TEST(TcpStoreAddressTest, RefusesAddressesOfOtherMachines) {
  const std::string message = error_of([] { TcpStoreServer("192.0.2.1", 0); });
  EXPECT_PRED2(contains, message,
               "cannot listen at 192.0.2.1:0: this is not an address of this machine");
}

TEST_F(TcpStoreTest, TellsClientsOfOtherVersions) {
  TcpPeer old(server_->port());
  old.send(tcp_store::greeting(tcp_store::kClientMagic, 9));
  EXPECT_EQ(old.receive(tcp_store::kGreetingSize), tcp_store::greeting(tcp_store::kServerMagic));
  EXPECT_TRUE(old.is_disconnected());
}

/// Ranks are started by fork and exec; a connection they inherited would never end.
TEST_F(TcpStoreTest, LeavesNoDescriptorToProgramsThatAreStarted) {
  std::vector<int> before;
  constexpr int kDescriptors = 1024;
  for (int i = 0; i < kDescriptors; ++i)
    if (fcntl(i, F_GETFD) != -1) before.push_back(i);
  const TcpStoreServer server(kLoopback, 0);
  TcpStore client(kLoopback, server.port(), kPatience);
  client.set("a", "1");
  int found = 0;
  for (int i = 0; i < kDescriptors; ++i) {
    const int flags = fcntl(i, F_GETFD);
    if (flags == -1 || std::find(before.begin(), before.end(), i) != before.end()) continue;
    ++found;
    EXPECT_NE(flags & FD_CLOEXEC, 0) << "descriptor " << i;
  }
  EXPECT_EQ(found, 3);  // listener, both ends of a connection
}

}  // namespace
}  // namespace lab::tcp_store_test
