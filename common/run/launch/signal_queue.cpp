// signalfd.
#include "common/run/launch/signal_queue.h"

#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "common/error.h"

namespace lab {

SignalQueue::SignalQueue() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGPIPE}) sigaddset(&signals, signal);
  descriptor_ = Descriptor(signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK));
  require(static_cast<bool>(descriptor_), "cannot watch for signals: {}", std::strerror(errno));
  pthread_sigmask(SIG_BLOCK, &signals, &before_);
}

SignalQueue::~SignalQueue() {
  while (next()) {
  }
  pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

std::optional<int> SignalQueue::next() {
  signalfd_siginfo info = {};
  while (read(descriptor_.get(), &info, sizeof info) == sizeof info)
    if (info.ssi_signo != SIGPIPE) return static_cast<int>(info.ssi_signo);
  return std::nullopt;
}

}  // namespace lab
