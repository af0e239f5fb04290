// What each function of the runtime API begins and ends with.
#pragma once

#include <chrono>
#include <exception>
#include <functional>
#include <thread>

#include "emulated/runtime_types.h"
#include "lock.h"

namespace lab::emulation {

/// The device that cudaSetDevice chose on this thread.
int& current_device();

/// What set_bus_of_thread chose on this thread; else -1.
int& bus_of_thread();

/// cudaSuccess, or why no device can be used.
cudaError_t driver_state();

/// Notes an error for cudaGetLastError, and returns it.
cudaError_t noted(cudaError_t error);

/// Keeps an error that cannot be thrown where it arises; the next call() throws it.
void keep_error(std::exception_ptr error);
void throw_kept_error();
void forget_kept_error();

/// The body of a call: takes the lock, checks the driver, throws a kept error, notes the result.
template <typename F>
cudaError_t call(F body) {
  const auto lock = lock_runtime();
  throw_kept_error();
  if (const cudaError_t error = driver_state(); error != cudaSuccess) return noted(error);
  return noted(body());
}

/// The same for calls that wait: `body(ready)` says whether all was ready, and is called again
/// until it was, without the lock in between. Other threads of the host may then do their part.
template <typename F>
cudaError_t call_until_ready(F body) {
  for (;;) {
    bool ready = true;
    const cudaError_t error = call([&] { return body(ready); });
    if (error != cudaSuccess || ready) return error;
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
}

/// The same for calls from destructors: an error of a kernel is kept, and cudaErrorLaunchFailure
/// returned.
template <typename F>
cudaError_t call_without_throwing(F body) noexcept {
  const auto lock = lock_runtime();
  try {
    return noted(body());
  } catch (...) {
    keep_error(std::current_exception());
    return noted(cudaErrorLaunchFailure);
  }
}

}  // namespace lab::emulation
