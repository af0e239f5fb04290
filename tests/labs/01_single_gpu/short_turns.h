// ShortTurns: lets what threads do to each other happen soon, also on a machine with one core.
#pragma once

#include <chrono>
#include <ctime>
#include <vector>

namespace lab01 {

/// While it lives, parallel loops use at least four threads, and each of them gives up its core
/// every few microseconds, wherever it happens to be. Left alone, a thread on a busy core is done
/// with a short loop before another one begins, and a race between them shows by chance.
class ShortTurns {
 public:
  ShortTurns();
  ~ShortTurns();
  ShortTurns(const ShortTurns&) = delete;
  ShortTurns& operator=(const ShortTurns&) = delete;

  /// Whether it has lived for two seconds: enough of it, on a machine that is busy with much else.
  bool long_enough() const;

 private:
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  std::vector<timer_t> timers_;  // one per thread
};

}  // namespace lab01
