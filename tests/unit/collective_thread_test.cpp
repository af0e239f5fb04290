// CollectiveThread: what is queued after a failure, and waits that take too long.
#include "common/comm/collective_thread.h"

#include <gtest/gtest.h>

#include <chrono>
#include <mutex>
#include <string>

#include "common/error.h"
#include "tests/unit/error_of.h"

namespace lab::collective_thread_test {
namespace {

using namespace std::chrono_literals;

TEST(CollectiveThread, AfterAFailureNothingElseRuns) {
  CollectiveThread thread;
  bool ran = false;
  auto bad = thread.run({.body = [] { fail("the cable is cut"); }});
  auto next = thread.run({.body = [&ran] { ran = true; }});
  for (Transfer* transfer : {next.get(), bad.get()})
    EXPECT_EQ(error_of([&] { transfer->wait(5s); }), "the cable is cut");
  EXPECT_THROW(thread.drain(5s), Error);
  EXPECT_FALSE(ran);
}

TEST(CollectiveThread, AWaitHasADeadline) {
  std::mutex door;
  std::unique_lock closed(door);
  CollectiveThread thread;
  auto transfer = thread.run({.body = [&door] { const std::lock_guard lock(door); }});
  EXPECT_THROW(transfer->wait(20ms), Error);
  closed.unlock();
  transfer->wait(5s);
  thread.drain(5s);
}

}  // namespace
}  // namespace lab::collective_thread_test
