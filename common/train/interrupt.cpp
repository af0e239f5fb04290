// Interrupt: lets a run end in good order when the user presses Ctrl-C.
#include "common/train/interrupt.h"

#include <csignal>

namespace lab {
namespace {

// A signal handler can reach nothing but a global variable.
volatile std::sig_atomic_t signal_received = 0;

void note_signal(int signal) { signal_received = signal; }

}  // namespace

Interrupt::Interrupt() {
  signal_received = 0;
  struct sigaction action {};
  action.sa_handler = note_signal;
  action.sa_flags = static_cast<int>(SA_RESETHAND | SA_RESTART);  // the second signal kills
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

Interrupt::~Interrupt() {
  std::signal(SIGINT, SIG_DFL);
  std::signal(SIGTERM, SIG_DFL);
}

bool Interrupt::requested() const { return signal_received != 0; }

int Interrupt::exit_code() const { return 128 + (requested() ? signal_received : SIGINT); }

}  // namespace lab
