// Patience: asking again and again until something is so, or the time is up.
#pragma once

#include <chrono>
#include <string>

namespace lab::nccl {

/// NCCL has no call that waits for "finished, failed, or too late": one has to ask. What counts is
/// the answer; the pauses between the questions order nothing and only leave the core to others.
///
/// The first questions follow each other at once; later pauses are a sixteenth of the time waited
/// so far, at most a millisecond.
class Patience {
 public:
  explicit Patience(std::chrono::milliseconds limit);

  bool over() const;
  void pause() const;
  /// Throws Error, saying for how long there was no answer, when the time is up; else pauses.
  void pause_or_fail() const;

 private:
  using Clock = std::chrono::steady_clock;
  std::chrono::milliseconds limit_;
  Clock::time_point begin_;
};

/// "600 s", "0.3 s".
std::string seconds(std::chrono::milliseconds time);

}  // namespace lab::nccl
