// SignalQueue: signals as events, where a program watches over others.
#pragma once

#include <signal.h>

#include <optional>

#include "common/run/launch/signal_thread.h"

namespace lab {

/// While it lives, SIGINT (Ctrl-C), SIGTERM and SIGHUP neither end this process nor interrupt it:
/// they are read here. Writing to a pipe that nobody reads returns an error instead of a signal.
/// To be created before any other thread but the SignalThread, which rests meanwhile. A
/// ChildProcess does not inherit this.
class SignalQueue {
 public:
  SignalQueue();
  ~SignalQueue();
  SignalQueue(const SignalQueue&) = delete;
  SignalQueue& operator=(const SignalQueue&) = delete;

  /// To poll for signals.
  int descriptor() const { return descriptor_; }
  /// The next signal that has come, if any.
  std::optional<int> next();

 private:
  SignalThread::Rest rest_;  // until the signals are as they were
  int descriptor_ = -1;
  sigset_t before_ = {};
};

}  // namespace lab
