// CollectiveThread: one queue, one mutex, two conditions.
#include "common/comm/collective_thread.h"

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <mutex>
#include <string>
#include <utility>

#include "common/error.h"

namespace lab {

struct CollectiveThread::State {
  std::mutex mutex;
  std::condition_variable queued;  // or: ended
  std::condition_variable advanced;
  std::deque<Task> queue;  // the first one is running
  uint64_t added = 0;
  uint64_t completed = 0;
  std::string error;  // of the task that failed; empty: none
  bool running = false;
  bool ended = false;

  /// Returns when the first `count` tasks are completed.
  void wait_for(uint64_t count, std::chrono::milliseconds timeout) {
    std::unique_lock lock(mutex);
    const bool in_time =
        advanced.wait_for(lock, timeout, [&] { return completed >= count || !error.empty(); });
    if (completed >= count) return;
    if (!error.empty()) fail("{}", error);
    require(in_time, "not finished within {} s", timeout.count() / 1000);
  }

  void work();
};

struct CollectiveThread::Queued final : Transfer {
  std::shared_ptr<State> state;
  uint64_t number = 0;

  Queued(std::shared_ptr<State> shared, uint64_t own) : state(std::move(shared)), number(own) {}
  void wait(std::chrono::milliseconds timeout) override { state->wait_for(number, timeout); }
};

void CollectiveThread::State::work() {
  std::unique_lock lock(mutex);
  while (true) {
    queued.wait(lock, [&] { return ended || (!queue.empty() && error.empty()); });
    if (ended) return;
    // The flight record is told under the lock: its owner may leave as soon as `ended` is set.
    if (queue.front().started) queue.front().started();
    // Moved, not copied: destroying it below must free what it owns.
    const std::function<void()> body = std::move(queue.front().body);
    running = true;
    lock.unlock();
    const std::string failure = failure_of(body);
    lock.lock();
    running = false;
    advanced.notify_all();
    if (ended) return;
    if (!failure.empty()) {
      error = failure;
    } else {
      if (queue.front().finished) queue.front().finished();
      queue.pop_front();
      ++completed;
    }
  }
}

CollectiveThread::CollectiveThread()
    : state_(std::make_shared<State>()), thread_([state = state_] { state->work(); }) {}

CollectiveThread::~CollectiveThread() {
  const std::chrono::seconds grace(std::uncaught_exceptions() > 0 ? 0 : 2);
  std::unique_lock lock(state_->mutex);
  state_->ended = true;
  state_->queue.clear();
  state_->queued.notify_all();
  const bool returned = state_->advanced.wait_for(lock, grace, [&] { return !state_->running; });
  lock.unlock();
  if (returned)
    thread_.join();
  else
    thread_.detach();
}

std::unique_ptr<Transfer> CollectiveThread::run(Task task) {
  const std::lock_guard lock(state_->mutex);
  state_->queue.push_back(std::move(task));
  state_->queued.notify_all();
  return std::make_unique<Queued>(state_, ++state_->added);
}

void CollectiveThread::drain(std::chrono::milliseconds timeout) {
  uint64_t added = 0;
  {
    const std::lock_guard lock(state_->mutex);
    added = state_->added;
  }
  state_->wait_for(added, timeout);
}

}  // namespace lab
