// CollectiveThread: runs blocking collectives while the rank computes.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <thread>

#include "common/comm/transport.h"

namespace lab {

/// A thread that runs its tasks one after the other, for transports whose collectives can only
/// block. A group gets one when it first posts a collective.
///
/// After a failure nothing else runs: the connection is in an unknown state. Everything that is
/// still queued then fails with the first error.
class CollectiveThread {
 public:
  struct Task {
    std::function<void()> body;  // may throw Error; owns what it uses
    /// Called around the body; not called any more once this object has been destroyed.
    std::function<void()> started = {};
    std::function<void()> finished = {};
  };

  CollectiveThread();
  /// Drops what has not begun and joins the thread. A running body gets 2 s to return, or no time
  /// at all if the rank leaves because of an exception; if it is still running then, its thread
  /// continues until the body's own deadline.
  ~CollectiveThread();
  CollectiveThread(const CollectiveThread&) = delete;
  CollectiveThread& operator=(const CollectiveThread&) = delete;

  /// Queues a task.
  std::unique_ptr<Transfer> run(Task task);
  /// Returns when the queue is empty. Throws Error if the time is up first, or a task has failed.
  void drain(std::chrono::milliseconds timeout);

 private:
  struct State;
  struct Queued;
  std::shared_ptr<State> state_;  // shared with the thread and the transfers
  std::thread thread_;
};

}  // namespace lab
