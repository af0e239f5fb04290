// TcpStore: whatever answers at its address, or does not, a client never hangs.
#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <optional>
#include <string>
#include <thread>

#include "common/comm/store/tcp_store.h"
#include "tests/unit/error_of.h"
#include "tests/unit/tcp_store_peer.h"

namespace lab::tcp_store_client_test {
namespace {

using namespace std::chrono_literals;

constexpr auto kPatience = 20s;
const std::string kLoopback = "127.0.0.1";

TEST(TcpStoreClientTest, SaysThatNobodyListens) {
  const UnusedPort port;
  const auto begin = std::chrono::steady_clock::now();
  const std::string message =
      error_of([&] { TcpStore(kLoopback, port.number(), std::chrono::milliseconds(60)); });
  EXPECT_GE(std::chrono::steady_clock::now() - begin, 60ms);
  EXPECT_PRED2(contains, message, fmt::format("no store at 127.0.0.1:{} after ", port.number()));
  EXPECT_PRED2(contains, message, "(Connection refused): is rank 0 running there?");
}

TEST(TcpStoreClientTest, WaitsForAServerThatComesLater) {
  const UnusedPort port;
  auto client = std::async(std::launch::async, [&] {
    return TcpStore(kLoopback, port.number(), kPatience).get("a", kPatience);
  });
  EXPECT_EQ(client.wait_for(30ms), std::future_status::timeout);
  TcpStoreServer server(kLoopback, port.number());
  server.store().set("a", "1");
  EXPECT_EQ(client.get(), "1");
}

/// What `use` throws at a listener that answers the greeting of its client with `reply`, and then
/// nothing more.
template <typename Use>
std::string error_at_listener(const std::string& reply, const Use& use) {
  const tcp_store::Socket listener = tcp_store::listen_at(kLoopback, 0);
  const uint16_t port = tcp_store::own_port(listener);
  auto client = std::async(std::launch::async, [&] { return error_of([&] { use(port); }); });
  TcpPeer peer(listener);
  peer.receive(tcp_store::kGreetingSize);
  peer.send(reply);
  return client.get();
}

void connect_patiently(uint16_t port) { TcpStore(kLoopback, port, kPatience); }

TEST(TcpStoreClientTest, RecognisesWhatIsNoStore) {
  const std::string message =
      error_at_listener("HTTP/1.1 400 Bad Request\r\n\r\n", connect_patiently);
  EXPECT_PRED2(contains, message, "is not a store");
}

TEST(TcpStoreClientTest, RecognisesWhatSaysLittle) {
  const std::string message =
      error_at_listener("+OK", [](uint16_t port) { TcpStore(kLoopback, port, 50ms); });
  EXPECT_PRED2(contains, message, "is not a store");
}

TEST(TcpStoreClientTest, RecognisesOtherVersions) {
  const std::string message =
      error_at_listener(tcp_store::greeting(tcp_store::kServerMagic, 9), connect_patiently);
  EXPECT_PRED2(contains, message, "is of version 9, this program of version 2");
}

TEST(TcpStoreClientTest, GivesUpOnWhoSaysNothing) {
  const std::string message =
      error_at_listener("", [](uint16_t port) { TcpStore(kLoopback, port, 50ms); });
  EXPECT_PRED2(contains, message, "does not answer");
}

const std::string kGreeting =
    tcp_store::greeting(tcp_store::kServerMagic) + tcp_store::encode_identity(1);

TEST(TcpStoreClientTest, GetGivesUpWhenTheServerDoesNotAnswer) {
  const std::string message = error_at_listener(kGreeting, [](uint16_t port) {
    TcpStore store(kLoopback, port, kPatience);
    try {
      store.get("a", 10ms);
    } catch (const StoreTimeout& timeout) {
      fail("StoreTimeout: {}", timeout.what());
    }
  });
  EXPECT_EQ(message, "StoreTimeout: nobody set the key \"a\" within 0.01 s");
}

/// The time that an answer may take counts from where its request can be sent.
TEST(TcpStoreClientTest, GetTakesAValueAlsoIfItTakesLongToConnect) {
  const tcp_store::Socket listener = tcp_store::listen_at(kLoopback, 0);
  const uint16_t port = tcp_store::own_port(listener);
  std::promise<void> hung_up;
  auto client = std::async(std::launch::async, [&] {
    TcpStore store(kLoopback, port, kPatience);
    hung_up.get_future().wait();
    return store.get("a", 0ms);
  });
  std::optional<TcpPeer> first(listener);
  first->send(kGreeting);
  first->receive(tcp_store::kGreetingSize);
  first.reset();
  hung_up.set_value();
  TcpPeer second(listener);
  std::this_thread::sleep_for(700ms);
  second.send(kGreeting);
  const std::string request = tcp_store::encode({tcp_store::Kind::kGet, "a", "0"});
  second.receive(tcp_store::kGreetingSize + request.size());
  second.send(tcp_store::encode({.value = "1"}));
  EXPECT_EQ(client.get(), "1");
}

}  // namespace
}  // namespace lab::tcp_store_client_test
