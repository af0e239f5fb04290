// Patience: polls until something is true or the time is up.
#pragma once

#include <chrono>
#include <string>

namespace lab::nccl {

/// NCCL has no call that waits for "finished, failed, or too late", so it has to be polled. The
/// pauses between polls only leave the core to others; nothing depends on them.
///
/// The first polls follow each other without a pause; later pauses are a sixteenth of the time
/// waited so far, at most a millisecond.
class Patience {
 public:
  explicit Patience(std::chrono::milliseconds limit);

  bool over() const;
  void pause() const;
  /// Throws Error when the time is up, saying for how long there was no answer; otherwise pauses.
  void pause_or_fail() const;

 private:
  using Clock = std::chrono::steady_clock;
  std::chrono::milliseconds limit_;
  Clock::time_point begin_;
};

/// "600 s", "0.3 s".
std::string seconds(std::chrono::milliseconds time);

}  // namespace lab::nccl
