// A thread that waits until it is no longer needed.
#include "common/run/launch/signal_thread.h"

#include <condition_variable>
#include <mutex>
#include <stop_token>

namespace lab {
namespace {

// Signals belong to the whole process, and so does this.
SignalThread* the_only_one = nullptr;

}  // namespace

SignalThread::SignalThread() {
  sigemptyset(&signals_);
  for (const int signal : {SIGINT, SIGTERM}) sigaddset(&signals_, signal);
  pthread_sigmask(SIG_BLOCK, &signals_, &before_);
  start();
  the_only_one = this;
}

SignalThread::~SignalThread() {
  the_only_one = nullptr;
  stop();
  pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

void SignalThread::start() {
  thread_ = std::jthread([signals = signals_](const std::stop_token& stop) {
    pthread_sigmask(SIG_UNBLOCK, &signals, nullptr);
    std::mutex mutex;
    std::unique_lock lock(mutex);
    std::condition_variable_any().wait(lock, stop, [] { return false; });
  });
}

void SignalThread::stop() { thread_ = std::jthread(); }

SignalThread::Rest::Rest() {
  if (the_only_one != nullptr) the_only_one->stop();
}

SignalThread::Rest::~Rest() {
  if (the_only_one != nullptr) the_only_one->start();
}

}  // namespace lab
