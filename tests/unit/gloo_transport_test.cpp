// Ranks that connect over Gloo while somebody else connects to them.
#include "common/comm/gloo/gloo_transport.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <barrier>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <memory>
#include <mutex>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "common/comm/store/memory_store.h"
#include "common/error.h"
#include "tests/unit/error_of.h"

namespace lab::gloo_transport_test {
namespace {

using namespace std::chrono_literals;

/// The sockets of this process, as /proc/net/tcp numbers them.
std::set<std::string> own_sockets() {
  std::set<std::string> numbers;
  for (const auto& file : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    const std::string target = std::filesystem::read_symlink(file, gone).string();
    if (target.starts_with("socket:[")) numbers.insert(target.substr(8, target.size() - 9));
  }
  return numbers;
}

/// The ports at which this process listens.
std::set<uint16_t> listening() {
  constexpr const char* kListens = "0A";
  const std::set<std::string> own = own_sockets();
  std::set<uint16_t> ports;
  std::ifstream table("/proc/self/net/tcp");
  std::string line;
  std::getline(table, line);  // its head
  while (std::getline(table, line)) {
    std::istringstream words(line);
    std::string word;
    std::vector<std::string> fields;
    while (words >> word) fields.push_back(word);
    if (fields[3] == kListens && own.contains(fields[9]))
      ports.insert(static_cast<uint16_t>(std::stoul(fields[1].substr(9), nullptr, 16)));
  }
  return ports;
}

/// Connects to every port at which this process listens, and keeps the connections.
class Scanner {
 public:
  ~Scanner() {
    for (const int socket : sockets_) close(socket);
  }
  void scan() {
    for (const uint16_t port : listening()) {
      sockaddr_in address = {};
      address.sin_family = AF_INET;
      address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
      address.sin_port = htons(port);
      sockets_.push_back(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
      std::ignore = connect(sockets_.back(), reinterpret_cast<sockaddr*>(&address), sizeof address);
    }
  }

 private:
  std::vector<int> sockets_;
};

/// Whether Gloo says under this key where a rank listens.
bool is_address(const std::string& key) {
  return key.find("/address/") != std::string::npos &&
         key.find_first_not_of("0123456789", key.rfind('/') + 1) == std::string::npos;
}

/// A store that does all as another one, but what is overridden.
class ForwardingStore : public Store {
 public:
  explicit ForwardingStore(std::shared_ptr<Store> store) : store_(std::move(store)) {}

  void set(const std::string& key, const std::string& value) override { store_->set(key, value); }
  std::optional<std::string> get_within(const std::string& key,
                                        std::chrono::milliseconds timeout) override {
    return store_->get_within(key, timeout);
  }
  int64_t add(const std::string& key, int64_t amount) override { return store_->add(key, amount); }

 private:
  std::shared_ptr<Store> store_;
};

/// With it, a rank dies as soon as it has said where it listens.
class StoreOfTheDying final : public ForwardingStore {
 public:
  using ForwardingStore::ForwardingStore;

  void set(const std::string& key, const std::string& value) override {
    ForwardingStore::set(key, value);
    require(!is_address(key), "dead");
  }
};

/// When all ranks listen, and the last one is about to say where, this lets a scanner connect to
/// them.
class ScannedStore final : public ForwardingStore {
 public:
  /// `attempts`: how often.
  ScannedStore(int ranks, int attempts)
      : ForwardingStore(std::make_shared<MemoryStore>()), ranks_(ranks), attempts_(attempts) {}

  void set(const std::string& key, const std::string& value) override {
    if (is_address(key)) scan_when_all_listen();
    ForwardingStore::set(key, value);
  }

  int scans() const { return scans_; }

 private:
  void scan_when_all_listen() {
    const std::lock_guard lock(mutex_);
    if (++addresses_ % ranks_ != 0 || scans_ == attempts_) return;
    ++scans_;
    scanner_.scan();
  }

  const int ranks_;
  const int attempts_;
  std::mutex mutex_;
  int addresses_ = 0;
  int scans_ = 0;
  Scanner scanner_;
};

/// What each rank threw while it connected; "" if it was connected to all others. Rank 0 arrives
/// `delay` later than the others.
std::vector<std::string> connect(ScannedStore& store, int ranks, std::chrono::milliseconds patience,
                                 std::chrono::milliseconds delay = 0ms) {
  std::signal(SIGPIPE, SIG_IGN);  // as Job does: a peer that is gone is an error
  std::vector<std::string> errors(static_cast<size_t>(ranks));
  std::vector<std::thread> threads;
  std::barrier all_done(ranks);
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      std::unique_ptr<Transport> transport;
      if (rank == 0) std::this_thread::sleep_for(delay);
      try {
        transport = connect_gloo(
            {.rank = rank, .size = ranks, .timeout = 60s, .patience = patience}, store);
        std::vector<float> sum{1.0F};
        transport->run({.kind = OpKind::kAllReduce,
                        .input = sum,
                        .output = sum,
                        .call = {.tag = 1, .timeout = 60s}});
        EXPECT_EQ(sum[0], static_cast<float>(ranks));
      } catch (const std::exception& error) {
        errors[static_cast<size_t>(rank)] = error.what();
      }
      all_done.arrive_and_wait();
    });
  for (std::thread& thread : threads) thread.join();
  return errors;
}

// Until 2023 (Debian 12) a scanner takes the place of a rank. Later versions have one listener,
// which asks who connects, so a scanner does no harm; those of 2023 (Ubuntu 24.04, Debian 13),
// however, may abort when a connection ends before that is known.
enum class Scanning { kTakesAPlace, kMayAbort, kDoesNoHarm };
#if !__has_include(<gloo/transport/tcp/listener.h>)
constexpr Scanning kScanning = Scanning::kTakesAPlace;
#elif !__has_include(<gloo/transport/tcp/debug_data.h>)
constexpr Scanning kScanning = Scanning::kMayAbort;
#else
constexpr Scanning kScanning = Scanning::kDoesNoHarm;
#endif

class GlooTransportTest : public testing::TestWithParam<int> {};

INSTANTIATE_TEST_SUITE_P(Ranks, GlooTransportTest, testing::Values(2, 3, 6));

TEST_P(GlooTransportTest, RanksConnectAgainAfterAStrayConnection) {
  if (kScanning == Scanning::kMayAbort) GTEST_SKIP() << "a scanner can end this version of Gloo";
  const int ranks = GetParam();
  ScannedStore store(ranks, 1);
  for (const std::string& error : connect(store, ranks, 500ms)) EXPECT_EQ(error, "");
  EXPECT_EQ(store.try_get("gloo/world/1/problem/0").has_value(),
            kScanning == Scanning::kTakesAPlace);
}

TEST(GlooTransport, ARankMayArriveLaterThanAnAttemptLasts) {
  ScannedStore store(3, 0);
  for (const std::string& error : connect(store, 3, 50ms, 500ms)) EXPECT_EQ(error, "");
}

TEST(GlooTransport, RanksGiveUpTogether) {
  if (kScanning != Scanning::kTakesAPlace)
    GTEST_SKIP() << "no scanner disturbs this version of Gloo";
  ScannedStore store(2, 100);
  const std::vector<std::string> errors = connect(store, 2, 50ms);
  EXPECT_EQ(store.scans(), 5);
  EXPECT_NE(errors[0], "");
  EXPECT_EQ(errors[0], errors[1]);
}

TEST(GlooTransport, SaysWhichRankDoesNotCome) {
  MemoryStore store;
  try {
    connect_gloo({.rank = 0, .size = 2, .timeout = 50ms}, store);
    ADD_FAILURE() << "connected to nobody";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "rank 1 has not connected within 0.05 s");
  }
}

TEST(GlooTransport, InAGroupOfAGroupARankHasItsNumberOfTheWorld) {
  MemoryStore store;
  const auto run = [&](int rank) {
    const auto world = connect_gloo({.rank = rank, .size = 3, .timeout = 10s}, store);
    if (rank == 0) return;
    const auto group = world->connect({1, 2}, "group", 10s);
    if (rank == 2) return;
    const std::string error = error_of([&] { group->connect({0, 1}, "pair", 50ms); });
    EXPECT_EQ(error, "rank 2 has not connected within 0.05 s");
  };
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 3; ++rank) ranks.emplace_back(run, rank);
  for (std::thread& rank : ranks) rank.join();
}

/// Newer versions of Gloo tell about every group; an error or a student's own lines still appear.
TEST(GlooTransport, LeavesOutWhatGlooTellsWhenAllIsWell) {
  MemoryStore store;
  testing::internal::CaptureStderr();
  const auto world = connect_gloo({.rank = 0, .size = 1, .timeout = 10s}, store);
  std::cerr << std::string("[./gloo/transport/tcp/context.cc:243] INFO Rank 0 is connected\n");
  std::cerr << std::string("[./gloo/transport/tcp/pair.cc:88] WARN closed\n") << "loss " << 3
            << '\n';
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "[./gloo/transport/tcp/pair.cc:88] WARN closed\nloss 3\n");
}

/// Gloo takes 0 ms for no limit: with little time left, a rank would wait for a dead one forever.
TEST(GlooTransport, ConnectingEndsAlsoWithTheDeadlineNear) {
  if (kScanning == Scanning::kMayAbort)
    GTEST_SKIP() << "a rank that dies while it connects can end this version of Gloo";
  for (const std::chrono::milliseconds delay : {94ms, 96ms, 97ms, 98ms, 99ms})
    for (const int dying : {0, 1}) {
      const auto store = std::make_shared<MemoryStore>();
      std::thread late([&] {
        std::this_thread::sleep_for(delay);
        StoreOfTheDying last_words(store);
        EXPECT_THROW(connect_gloo({.rank = dying, .size = 2, .timeout = 1s}, last_words), Error);
      });
      EXPECT_THROW(connect_gloo({.rank = 1 - dying, .size = 2, .timeout = 100ms}, *store), Error);
      late.join();
    }
}

}  // namespace
}  // namespace lab::gloo_transport_test
