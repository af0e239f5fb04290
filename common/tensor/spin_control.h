// OpenMP's threads spin while they wait for each other, but not for long on a busy machine.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <thread>

namespace lab {

/// At the end of a parallel loop, OpenMP's threads spin until the last one is done: that is the
/// fastest way to go on. But beside another program one of them must wait for its core, while the
/// others spin for nothing: a step takes three times as long (docs/measurements.md). libgomp spins
/// for a short time only while it has more threads than cores (its manual, GOMP_SPINCOUNT). So
/// during the lifetime of this object, a thread checks ten times a second whether cores are scarce
/// and, while they are, keeps a team of idle threads.
///
/// Does nothing in a process with one OpenMP thread, or if the environment says how threads wait
/// (GOMP_SPINCOUNT, OMP_WAIT_POLICY), as the launcher does for its ranks.
class SpinControl {
 public:
  SpinControl();

 private:
  std::jthread watcher_;
};

/// How long the threads of this process wait for a core, as the kernel counts it (its
/// documentation, sched-stats: /proc/PID/task/TID/schedstat).
class CoreWaits {
 public:
  /// Since the previous call, or since the object was made: of the thread that waited longest.
  /// 0 where the system does not count.
  std::chrono::nanoseconds longest();

 private:
  using ByThread = std::map<int, int64_t>;
  static ByThread so_far();

  ByThread before_ = so_far();
};

}  // namespace lab
