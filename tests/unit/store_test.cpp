// What all stores have in common, tested on each of them.
#include "common/comm/store/store.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <future>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "common/comm/store/file_store.h"
#include "common/comm/store/memory_store.h"
#include "common/comm/store/tcp_store.h"
#include "common/error.h"
#include "tests/unit/error_of.h"
#include "tests/unit/temp_folder.h"

namespace lab::store_test {
namespace {

using namespace std::chrono_literals;

constexpr auto kPatience = 20s;

struct Memory {
  static constexpr int kAdds = 200;
  MemoryStore store;
};
struct File {
  static constexpr int kAdds = 50;  // each takes about a millisecond
  TempFolder folder;
  FileStore store{folder.path() / "made" / "by the store"};
};
struct Tcp {
  static constexpr int kAdds = 200;
  TcpStoreServer server{"127.0.0.1", 0};
  TcpStore store{"127.0.0.1", server.port(), kPatience};
};
/// The server's own view of what it serves.
struct Served {
  static constexpr int kAdds = 200;
  TcpStoreServer server{"127.0.0.1", 0};
  Store& store = server.store();
};

template <typename Fixture>
class StoreTest : public testing::Test {
 protected:
  Store& store() { return fixture_.store; }

 private:
  Fixture fixture_;
};

using Stores = testing::Types<Memory, File, Tcp, Served>;

struct Names {
  template <typename Fixture>
  static std::string GetName(int index) {
    return std::vector<std::string>{"Memory", "File", "Tcp", "Served"}[static_cast<size_t>(index)];
  }
};

TYPED_TEST_SUITE(StoreTest, Stores, Names);

TYPED_TEST(StoreTest, SetsReplacesAndFinds) {
  EXPECT_EQ(this->store().try_get("a"), std::nullopt);
  this->store().set("a", "1");
  this->store().set("b", "2");
  EXPECT_EQ(this->store().try_get("a"), "1");
  this->store().set("a", "a longer value");
  EXPECT_EQ(this->store().get("a", kPatience), "a longer value");
  this->store().set("a", "3");
  EXPECT_EQ(this->store().get("a", 0ms), "3");
  EXPECT_EQ(this->store().get("b", 0ms), "2");
}

TYPED_TEST(StoreTest, TakesAnyBytes) {
  std::string all_bytes;
  for (int byte = 0; byte < 256; ++byte) all_bytes += static_cast<char>(byte);
  const std::vector<std::string> texts = {"",   all_bytes, std::string(1000, '\0'),
                                          "..", "x/../y",  "%2F"};
  for (const std::string& text : texts) this->store().set(text, text);
  for (const std::string& text : texts) EXPECT_EQ(this->store().try_get(text), text);
}

TYPED_TEST(StoreTest, TakesKeysAndValuesUpToTheirLimits) {
  const std::string key(kMaxStoreKey, '/');
  std::string value(kMaxStoreValue, '\0');
  for (size_t i = 0; i < value.size(); ++i) value[i] = static_cast<char>(i * i >> 7);
  this->store().set(key, value);
  this->store().set(key.substr(1), "another");
  EXPECT_TRUE(this->store().get(key, kPatience) == value);  // EXPECT_EQ would print it

  EXPECT_PRED2(contains, error_of([&] { this->store().set(key + "x", "1"); }), "key");
  EXPECT_PRED2(contains, error_of([&] { this->store().set("large", value + "x"); }), "large");
  EXPECT_PRED2(contains, error_of([&] { this->store().get(key + "x", 1ms); }), "1025");
  EXPECT_PRED2(contains, error_of([&] { this->store().try_get(key + "x"); }), "1025");
  EXPECT_PRED2(contains, error_of([&] { this->store().add(key + "x", 1); }), "1025");
  EXPECT_EQ(this->store().try_get("large"), std::nullopt);
}

TYPED_TEST(StoreTest, GetGivesUpInTimeAndSucceedsLater) {
  const auto begin = std::chrono::steady_clock::now();
  try {
    this->store().get("rank\n1", 30ms);
    ADD_FAILURE() << "there was no value";
  } catch (const StoreTimeout& error) {
    EXPECT_STREQ(error.what(), "nobody set the key \"rank\\x0a1\" within 0.03 s");
  }
  EXPECT_GE(std::chrono::steady_clock::now() - begin, 30ms);
  EXPECT_THROW(this->store().get("rank\n1", 0ms), StoreTimeout);
  EXPECT_THROW(this->store().get("rank\n1", -5ms), StoreTimeout);
  this->store().set("rank\n1", "here");
  EXPECT_EQ(this->store().get("rank\n1", 30ms), "here");
}

/// If one caller in `get` held up the others, none of them would ever get on.
TYPED_TEST(StoreTest, GetWaitsForAnotherThread) {
  constexpr int kRounds = 25;
  auto& store = this->store();
  const auto play = [&](bool begins) {
    for (int round = 0; round < kRounds; ++round) {
      const std::string name = std::to_string(round);
      if (!begins) store.get("ping" + name, kPatience);
      store.set((begins ? "ping" : "pong") + name, name);
      if (begins) store.get("pong" + name, kPatience);
    }
  };
  auto other = std::async(std::launch::async, [&] { play(false); });
  auto for_ever = std::async(std::launch::async,
                             [&] { return store.get("end", std::chrono::milliseconds::max()); });
  play(true);
  other.get();
  store.set("end", "now");
  EXPECT_EQ(for_ever.get(), "now");
}

TYPED_TEST(StoreTest, AddCounts) {
  auto& store = this->store();
  EXPECT_EQ(store.add("count", 5), 5);
  EXPECT_EQ(store.add("count", -7), -2);
  EXPECT_EQ(store.try_get("count"), "-2");
  EXPECT_EQ(store.add("count", 0), -2);
  store.set("count", "40");
  EXPECT_EQ(store.add("count", 2), 42);
}

TYPED_TEST(StoreTest, AddRefusesWhatIsNoCount) {
  auto& store = this->store();
  store.set("name", "node 7");
  EXPECT_EQ(error_of([&] { store.add("name", 1); }),
            "cannot add to the key \"name\": its value is not a number");
  EXPECT_EQ(store.try_get("name"), "node 7");
  store.set("full", "9223372036854775807");
  EXPECT_PRED2(contains, error_of([&] { store.add("full", 1); }), "no room");
  EXPECT_EQ(store.try_get("full"), "9223372036854775807");
}

TYPED_TEST(StoreTest, AddGivesEveryThreadNumbersOfItsOwn) {
  constexpr int kThreads = 8;
  constexpr int kAdds = TypeParam::kAdds;
  auto& store = this->store();
  std::vector<std::future<std::vector<int64_t>>> threads;
  for (int thread = 0; thread < kThreads; ++thread)
    threads.push_back(std::async(std::launch::async, [&] {
      std::vector<int64_t> numbers;
      for (int i = 0; i < kAdds; ++i) numbers.push_back(store.add("count", 1));
      return numbers;
    }));
  std::set<int64_t> all;
  for (auto& thread : threads)
    for (const int64_t number : thread.get()) all.insert(number);
  EXPECT_EQ(all.size(), kThreads * kAdds);
  EXPECT_EQ(*all.begin(), 1);
  EXPECT_EQ(*all.rbegin(), kThreads * kAdds);
}

TEST(MemoryStoreTest, HasALimit) {
  MemoryStore store(/*limit=*/10);
  store.set("a", "12345");
  store.set("a", "123456789");
  EXPECT_TRUE(contains(error_of([&] { store.set("b", ""); }), "the store is full"));
  EXPECT_TRUE(contains(error_of([&] { store.add("b", 1); }), "the store is full"));
  store.set("a", "");
  store.set("b", "12345678");
  EXPECT_EQ(store.try_get("b"), "12345678");
}

TEST(MemoryStoreTest, NobodyWaitsOnceItIsClosed) {
  MemoryStore store;
  store.set("a", "1");
  auto waits = std::async(std::launch::async, [&] { return store.get_within("never", kPatience); });
  store.close();
  EXPECT_EQ(waits.get(), std::nullopt);
  EXPECT_EQ(store.get_within("never", kPatience), std::nullopt);
  EXPECT_EQ(store.get("a", kPatience), "1");
}

TEST(FileStoreTest, AddsFromSeveralProcesses) {
  constexpr int kProcesses = 3;
  constexpr int kAdds = 60;
  const TempFolder folder;
  std::vector<pid_t> children;
  for (int i = 0; i < kProcesses; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      FileStore store(folder.path());
      for (int add = 0; add < kAdds; ++add) store.add("count", 1);
      _exit(0);
    }
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
  EXPECT_EQ(FileStore(folder.path()).try_get("count"), std::to_string(kProcesses * kAdds));
}

TEST(FileStoreTest, ReadsWholeValuesWhileTheyAreReplaced) {
  const TempFolder folder;
  FileStore writer(folder.path());
  FileStore reader(folder.path());
  const std::vector<std::string> values = {std::string(100'000, 'a'), std::string(70'000, 'b')};
  writer.set("value", values[0]);
  auto writing = std::async(std::launch::async, [&] {
    for (size_t i = 0; i < 200; ++i) writer.set("value", values[i % 2]);
  });
  while (writing.wait_for(0s) != std::future_status::ready) {
    const auto value = reader.try_get("value");
    ASSERT_TRUE(value == values[0] || value == values[1]);
  }
}

TEST(FileStoreTest, SaysWhatIsWrongWithTheFolder) {
  const TempFolder folder;
  EXPECT_PRED2(contains, error_of([] { FileStore("/proc/no/store"); }), "/proc/no/store");
  FileStore store(folder.path() / "job");
  store.set("a", "1");
  std::filesystem::remove_all(folder.path() / "job");
  const std::string gone = error_of([&] { store.get("a", kPatience); });
  EXPECT_PRED2(contains, gone, "did the job end?");
}

}  // namespace
}  // namespace lab::store_test
