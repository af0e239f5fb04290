// ShortTurns: makes races between threads show soon, even on a machine with one core.
#pragma once

#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <csignal>
#include <ctime>

#include "common/tensor/parallel.h"

#ifndef sigev_notify_thread_id  // glibc before 2.37 has no name for it
#define sigev_notify_thread_id _sigev_un._tid
#endif

namespace lab::grading {

/// While it lives, parallel loops use four threads, and each steps aside every few microseconds,
/// wherever it happens to be. Left alone, a thread on a busy core is done with a short loop before
/// another one begins, and a race between them shows by chance.
class ShortTurns {
 public:
  ShortTurns() {
    struct sigaction action {};
    action.sa_sigaction = end_turn;
    action.sa_flags = SA_SIGINFO | SA_RESTART;
    sigaction(SIGRTMIN, &action, nullptr);
    turns_left() = kTurns;
    set_thread_count(kThreads);
    parallel_for(0, kThreads, [&](int64_t thread) {
      timer_t& timer = timers_[static_cast<size_t>(thread)];
      sigevent event{};
      event.sigev_notify = SIGEV_THREAD_ID;
      event.sigev_signo = SIGRTMIN;
      event.sigev_value.sival_ptr = &timer;
      event.sigev_notify_thread_id = static_cast<pid_t>(syscall(SYS_gettid));
      if (timer_create(CLOCK_MONOTONIC, &event, &timer) == 0) begin_turn(timer);
    });
  }
  ~ShortTurns() {
    for (const timer_t timer : timers_) timer_delete(timer);
    parallel_for(0, kThreads, [](int64_t) {});  // after it no thread is in the handler
    std::signal(SIGRTMIN, SIG_IGN);
    set_thread_count(0);
  }
  ShortTurns(const ShortTurns&) = delete;
  ShortTurns& operator=(const ShortTurns&) = delete;

  /// Whether there have been enough turns that a race is unlikely to have gone unnoticed.
  static bool over() { return turns_left() <= 0; }

 private:
  static constexpr int kThreads = 4;
  static constexpr int kTurns = 3000;
  static constexpr timespec kTurn{.tv_sec = 0, .tv_nsec = 20'000};
  static constexpr timespec kShortly{.tv_sec = 0, .tv_nsec = 1};

  static std::atomic<int>& turns_left() {
    static std::atomic<int> left;
    return left;
  }
  static void begin_turn(timer_t timer) {
    const itimerspec turn{.it_interval = {}, .it_value = kTurn};
    timer_settime(timer, 0, &turn, nullptr);
  }
  static void end_turn(int /*signal*/, siginfo_t* info, void* /*context*/) {
    nanosleep(&kShortly, nullptr);  // sched_yield may come back at once
    if (--turns_left() > 0) begin_turn(*static_cast<timer_t*>(info->si_value.sival_ptr));
  }

  std::array<timer_t, kThreads> timers_{};
};

}  // namespace lab::grading
