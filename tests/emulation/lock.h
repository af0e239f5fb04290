// One lock for the whole emulation: one call at a time, and one kernel.
#pragma once

#include <mutex>

namespace lab::emulation {

inline std::unique_lock<std::recursive_mutex> lock_runtime() {
  static std::recursive_mutex mutex;
  return std::unique_lock(mutex);
}

}  // namespace lab::emulation
