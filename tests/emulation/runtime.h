// What each function of the runtime API begins and ends with.
#pragma once

#include <exception>
#include <functional>

#include "emulated/runtime_types.h"
#include "lock.h"

namespace lab::emulation {

/// The device that cudaSetDevice chose on this thread.
int& current_device();

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
