// See short_turns.h: a timer for each thread, whose signal makes it step aside.
#include "tests/labs/01_single_gpu/short_turns.h"

#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>

#include "common/tensor/parallel.h"

#ifndef sigev_notify_thread_id  // glibc before 2.37 has no name for it
#define sigev_notify_thread_id _sigev_un._tid
#endif

namespace lab01 {
namespace {

constexpr int kThreads = 4;
constexpr long kTurnNanoseconds = 20'000;

void begin_turn(timer_t timer) {
  const itimerspec turn{.it_interval = {}, .it_value = {.tv_sec = 0, .tv_nsec = kTurnNanoseconds}};
  timer_settime(timer, 0, &turn, nullptr);
}

/// A turn begins when the last one is over, and is not periodic: a thread that has waited long for
/// its core shall get on.
void end_turn(int /*signal*/, siginfo_t* info, void* /*context*/) {
  const timer_t timer = *static_cast<timer_t*>(info->si_value.sival_ptr);
  sched_yield();
  begin_turn(timer);
}

/// A timer that interrupts the thread that makes it.
void start_timer(timer_t& timer) {
  sigevent event{};
  event.sigev_notify = SIGEV_THREAD_ID;
  event.sigev_signo = SIGRTMIN;
  event.sigev_value.sival_ptr = &timer;
  event.sigev_notify_thread_id = static_cast<pid_t>(syscall(SYS_gettid));
  if (timer_create(CLOCK_MONOTONIC, &event, &timer) == 0) begin_turn(timer);
}

}  // namespace

ShortTurns::ShortTurns() {
  struct sigaction action {};
  action.sa_sigaction = end_turn;
  action.sa_flags = SA_SIGINFO | SA_RESTART;
  sigaction(SIGRTMIN, &action, nullptr);

  const int threads = std::max(kThreads, lab::thread_count());
  lab::set_thread_count(threads);
  timers_.resize(static_cast<size_t>(threads));
  lab::parallel_for(0, threads,
                    [&](int64_t thread) { start_timer(timers_[static_cast<size_t>(thread)]); });
}

bool ShortTurns::long_enough() const {
  return std::chrono::steady_clock::now() - begin_ > std::chrono::seconds(2);
}

ShortTurns::~ShortTurns() {
  for (const timer_t timer : timers_) timer_delete(timer);
  // Behind this loop no thread is in the handler.
  lab::parallel_for(0, static_cast<int64_t>(timers_.size()), [](int64_t) {});
  std::signal(SIGRTMIN, SIG_IGN);
  lab::set_thread_count(0);
}

}  // namespace lab01
