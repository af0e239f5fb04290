// SignalQueue: signals as events, for a program that watches others.
#pragma once

#include <signal.h>

#include <optional>

#include "common/io/descriptor.h"
#include "common/run/launch/signal_thread.h"

namespace lab {

/// During its lifetime, SIGINT (Ctrl-C), SIGTERM and SIGHUP neither end this process nor interrupt
/// it: they are read here. Writing to a pipe that nobody reads returns an error instead of a
/// signal. Create it before any other thread except the SignalThread, which is paused meanwhile. A
/// ChildProcess does not inherit this.
class SignalQueue {
 public:
  SignalQueue();
  ~SignalQueue();
  SignalQueue(const SignalQueue&) = delete;
  SignalQueue& operator=(const SignalQueue&) = delete;

  /// To poll for signals.
  int descriptor() const { return descriptor_.get(); }
  /// The next signal that has arrived, if any.
  std::optional<int> next();

 private:
  SignalThread::Rest rest_;  // until the signals are restored
  Descriptor descriptor_;
  sigset_t before_ = {};
};

}  // namespace lab
