// SignalThread: the only thread of a program that runs signal handlers.
#pragma once

#include <signal.h>

#include <thread>

namespace lab {

/// During its lifetime, SIGINT (Ctrl-C) and SIGTERM go to a dedicated thread: their handlers run
/// there, and without a handler they end the process as usual. Create it in main before any other
/// thread, so that the others inherit blocked signals. One object at a time. A ChildProcess does
/// not inherit this.
///
/// A handler uses the stack of the thread that it interrupts. In oneDNN's products for AVX-512, the
/// stack pointer temporarily points into the heap (oneDNN issue 4845), and a handler would
/// overwrite memory there. So no thread that computes may run a signal handler.
class SignalThread {
 public:
  SignalThread();
  ~SignalThread();
  SignalThread(const SignalThread&) = delete;
  SignalThread& operator=(const SignalThread&) = delete;

  /// During its lifetime the thread is paused, and signals stay pending until they are read.
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
