// SignalThread: the one thread of a program whose stack signals may use.
#pragma once

#include <signal.h>

#include <thread>

namespace lab {

/// While it lives, SIGINT (Ctrl-C) and SIGTERM interrupt a thread of its own that does nothing
/// else: whatever handles them runs there, and without a handler they end the process as ever. To
/// be created in main before any other thread: the others inherit that these signals are blocked.
/// One object at a time. A ChildProcess does not inherit this.
///
/// A handler uses the stack of the thread that it interrupts. In oneDNN's products for AVX-512 the
/// stack pointer points into memory of the heap for a while (oneDNN issue 4845), which the handler
/// then overwrites. So no thread that computes may run a handler, of whatever signal.
class SignalThread {
 public:
  SignalThread();
  ~SignalThread();
  SignalThread(const SignalThread&) = delete;
  SignalThread& operator=(const SignalThread&) = delete;

  /// While it lives, the thread is not there, and the signals wait for who reads them.
  class Rest {
   public:
    Rest();
    ~Rest();
    Rest(const Rest&) = delete;
    Rest& operator=(const Rest&) = delete;
  };

 private:
  void start();
  void stop();

  sigset_t signals_ = {};
  sigset_t before_ = {};
  std::jthread thread_;
};

}  // namespace lab
