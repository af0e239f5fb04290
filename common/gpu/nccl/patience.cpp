#include "common/gpu/nccl/patience.h"

#include <algorithm>
#include <thread>

#include "common/error.h"

namespace lab::nccl {

using std::chrono::microseconds;

Patience::Patience(std::chrono::milliseconds limit) : limit_(limit), begin_(Clock::now()) {}

bool Patience::over() const { return Clock::now() - begin_ >= limit_; }

void Patience::pause() const {
  const auto waited = std::chrono::duration_cast<microseconds>(Clock::now() - begin_);
  if (waited < microseconds(100)) {
    std::this_thread::yield();
    return;
  }
  std::this_thread::sleep_for(std::clamp(waited / 16, microseconds(20), microseconds(1000)));
}

void Patience::pause_or_fail() const {
  require(!over(), "no answer within {}", seconds(limit_));
  pause();
}

std::string seconds(std::chrono::milliseconds time) {
  return fmt::format("{:g} s", static_cast<double>(time.count()) / 1000);
}

}  // namespace lab::nccl
