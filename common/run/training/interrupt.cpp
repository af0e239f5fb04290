#include "common/run/training/interrupt.h"

#include <atomic>
#include <csignal>

namespace lab {
namespace {

// A signal handler can only reach a global variable.
std::atomic<int> signal_received = 0;
static_assert(std::atomic<int>::is_always_lock_free);

void note_signal(int signal) { signal_received = signal; }

}  // namespace

Interrupt::Interrupt() {
  signal_received = 0;
  struct sigaction action {};
  action.sa_handler = note_signal;
  action.sa_flags = static_cast<int>(SA_RESETHAND | SA_RESTART);  // the second one kills
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

Interrupt::~Interrupt() {
  std::signal(SIGINT, SIG_DFL);
  std::signal(SIGTERM, SIG_DFL);
}

int Interrupt::signal() const { return signal_received; }

}  // namespace lab
