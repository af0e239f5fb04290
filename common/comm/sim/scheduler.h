// Scheduler: lets the ranks of a simulation run one at a time, in a reproducible order.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <random>
#include <vector>

namespace lab {

/// Every rank has a thread; the one that holds the baton runs, all others sleep. A rank hands the
/// baton on when it has to wait and when it ends. So data that ranks share needs no lock.
class Scheduler {
 public:
  /// `seed`: for drawing the rank that continues when several can; without a seed, the lowest does.
  /// `when_stuck` is called, on any rank's thread, when all ranks wait; it must make at least one
  /// of them ready.
  Scheduler(int ranks, std::optional<uint64_t> seed, std::function<void()> when_stuck);

  /// Calls `body(rank)` on every rank's thread; returns when all have ended. `body` must not throw.
  void run(const std::function<void(int)>& body);

  /// Called by rank `rank`: returns when `ready` holds. Meanwhile the others run, unless it holds
  /// already.
  void wait_until(int rank, const std::function<bool()>& ready);

 private:
  static constexpr int kNoRank = -1;

  void pass_baton();
  bool take_baton(int rank);
  std::vector<int> ready_ranks() const;

  const std::function<void()> when_stuck_;
  std::optional<std::mt19937_64> random_;
  std::vector<std::function<bool()>> ready_;  // per rank; null: it has ended

  std::mutex mutex_;
  std::deque<std::condition_variable> woken_;  // per rank
  int holder_ = kNoRank;
  bool called_off_ = false;  // not all threads could be started
};

}  // namespace lab
