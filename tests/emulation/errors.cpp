// Errors: their names and words, and the one that happened last.
#include <array>
#include <utility>

#include "emulated/runtime_api.h"
#include "emulation.h"
#include "runtime.h"
#include "settings.h"
#include "streams.h"

namespace lab::emulation {
namespace {

struct Words {
  cudaError_t error;
  const char* name;
  const char* text;
};

constexpr std::array kWords = {
    Words{cudaSuccess, "cudaSuccess", "no error"},
    Words{cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    Words{cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    Words{cudaErrorInitializationError, "cudaErrorInitializationError", "initialization error"},
    Words{cudaErrorInvalidConfiguration, "cudaErrorInvalidConfiguration",
          "invalid configuration argument"},
    Words{cudaErrorInvalidPitchValue, "cudaErrorInvalidPitchValue", "invalid pitch argument"},
    Words{cudaErrorInvalidDevicePointer, "cudaErrorInvalidDevicePointer", "invalid device pointer"},
    Words{cudaErrorInvalidMemcpyDirection, "cudaErrorInvalidMemcpyDirection",
          "invalid copy direction for memcpy"},
    Words{cudaErrorInsufficientDriver, "cudaErrorInsufficientDriver",
          "CUDA driver version is insufficient for CUDA runtime version"},
    Words{cudaErrorDevicesUnavailable, "cudaErrorDevicesUnavailable",
          "CUDA-capable device(s) is/are busy or unavailable"},
    Words{cudaErrorInvalidDeviceFunction, "cudaErrorInvalidDeviceFunction",
          "invalid device function"},
    Words{cudaErrorNoDevice, "cudaErrorNoDevice", "no CUDA-capable device is detected"},
    Words{cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal"},
    Words{cudaErrorNoKernelImageForDevice, "cudaErrorNoKernelImageForDevice",
          "no kernel image is available for execution on the device"},
    Words{cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle",
          "invalid resource handle"},
    Words{cudaErrorIllegalState, "cudaErrorIllegalState",
          "the operation cannot be performed in the present state"},
    Words{cudaErrorNotReady, "cudaErrorNotReady", "device not ready"},
    Words{cudaErrorIllegalAddress, "cudaErrorIllegalAddress",
          "an illegal memory access was encountered"},
    Words{cudaErrorLaunchOutOfResources, "cudaErrorLaunchOutOfResources",
          "too many resources requested for launch"},
    Words{cudaErrorHostMemoryAlreadyRegistered, "cudaErrorHostMemoryAlreadyRegistered",
          "part or all of the requested memory range is already mapped"},
    Words{cudaErrorHostMemoryNotRegistered, "cudaErrorHostMemoryNotRegistered",
          "pointer does not correspond to a registered memory region"},
    Words{cudaErrorLaunchFailure, "cudaErrorLaunchFailure", "unspecified launch failure"},
    Words{cudaErrorNotPermitted, "cudaErrorNotPermitted", "operation not permitted"},
    Words{cudaErrorNotSupported, "cudaErrorNotSupported", "operation not supported"},
    Words{cudaErrorStreamCaptureUnsupported, "cudaErrorStreamCaptureUnsupported",
          "operation not permitted when stream is capturing"},
    Words{cudaErrorStreamCaptureInvalidated, "cudaErrorStreamCaptureInvalidated",
          "operation failed due to a previous error during capture"},
    Words{cudaErrorStreamCaptureMerge, "cudaErrorStreamCaptureMerge",
          "operation would result in a merge of separate capture sequences"},
    Words{cudaErrorStreamCaptureUnmatched, "cudaErrorStreamCaptureUnmatched",
          "capture was not ended in the same stream as it began"},
    Words{cudaErrorStreamCaptureUnjoined, "cudaErrorStreamCaptureUnjoined",
          "capturing stream has unjoined work"},
    Words{cudaErrorStreamCaptureIsolation, "cudaErrorStreamCaptureIsolation",
          "dependency created on uncaptured work in another stream"},
    Words{cudaErrorStreamCaptureImplicit, "cudaErrorStreamCaptureImplicit",
          "operation would make the legacy stream depend on a capturing blocking stream"},
    Words{cudaErrorCapturedEvent, "cudaErrorCapturedEvent",
          "operation not permitted on an event last recorded in a capturing stream"},
    Words{cudaErrorStreamCaptureWrongThread, "cudaErrorStreamCaptureWrongThread",
          "attempt to terminate a thread-local capture sequence from another thread"},
    Words{cudaErrorCudartUnloading, "cudaErrorCudartUnloading", "driver shutting down"},
    Words{cudaErrorPriorLaunchFailure, "cudaErrorPriorLaunchFailure",
          "unspecified launch failure in prior launch"},
    Words{cudaErrorECCUncorrectable, "cudaErrorECCUncorrectable",
          "uncorrectable ECC error encountered"},
    Words{cudaErrorInvalidPtx, "cudaErrorInvalidPtx", "a PTX JIT compilation failed"},
    Words{cudaErrorNvlinkUncorrectable, "cudaErrorNvlinkUncorrectable",
          "uncorrectable NVLink error detected during the execution"},
    Words{cudaErrorJitCompilerNotFound, "cudaErrorJitCompilerNotFound",
          "PTX JIT compiler library not found"},
    Words{cudaErrorUnsupportedPtxVersion, "cudaErrorUnsupportedPtxVersion",
          "the provided PTX was compiled with an unsupported toolchain."},
    Words{cudaErrorContained, "cudaErrorContained",
          "Invalid access of peer GPU memory over nvlink or a hardware error"},
    Words{cudaErrorLaunchTimeout, "cudaErrorLaunchTimeout",
          "the launch timed out and was terminated"},
    Words{cudaErrorContextIsDestroyed, "cudaErrorContextIsDestroyed", "context is destroyed"},
    Words{cudaErrorAssert, "cudaErrorAssert", "device-side assert triggered"},
    Words{cudaErrorHardwareStackError, "cudaErrorHardwareStackError", "hardware stack error"},
    Words{cudaErrorIllegalInstruction, "cudaErrorIllegalInstruction",
          "an illegal instruction was encountered"},
    Words{cudaErrorMisalignedAddress, "cudaErrorMisalignedAddress", "misaligned address"},
    Words{cudaErrorInvalidAddressSpace, "cudaErrorInvalidAddressSpace",
          "operation not supported on global/shared address space"},
    Words{cudaErrorInvalidPc, "cudaErrorInvalidPc", "invalid program counter"},
    Words{cudaErrorSystemNotReady, "cudaErrorSystemNotReady", "system not yet initialized"},
    Words{cudaErrorSystemDriverMismatch, "cudaErrorSystemDriverMismatch",
          "system has unsupported display driver / cuda driver combination"},
    Words{cudaErrorTimeout, "cudaErrorTimeout", "wait operation timed out"},
    Words{cudaErrorUnknown, "cudaErrorUnknown", "unknown error"},
};

const Words* find_words(cudaError_t error) {
  for (const Words& words : kWords) {
    if (words.error == error) return &words;
  }
  return nullptr;
}

cudaError_t& last_error() {
  static thread_local cudaError_t error = cudaSuccess;
  return error;
}

std::exception_ptr& kept_error() {
  static std::exception_ptr error;
  return error;
}

}  // namespace

cudaError_t noted(cudaError_t error) {
  // "Not ready" is an answer.
  if (error != cudaSuccess && error != cudaErrorNotReady) last_error() = error;
  return error;
}

void keep_error(std::exception_ptr error) {
  if (!kept_error()) kept_error() = std::move(error);
}

void throw_kept_error() {
  if (kept_error()) std::rethrow_exception(std::exchange(kept_error(), nullptr));
}

void forget_kept_error() { kept_error() = nullptr; }

void check() {
  const auto lock = lock_runtime();
  throw_kept_error();
}

void reset() {
  const auto lock = lock_runtime();
  forget_kept_error();
  drop_everything();
  last_error() = cudaSuccess;
  settings() = from_environment();
  counts() = {};
}

}  // namespace lab::emulation

using namespace lab::emulation;

cudaError_t cudaGetLastError() { return std::exchange(last_error(), cudaSuccess); }
cudaError_t cudaPeekAtLastError() { return last_error(); }

const char* cudaGetErrorString(cudaError_t error) {
  const Words* words = find_words(error);
  return words ? words->text : "unrecognized error code";
}

const char* cudaGetErrorName(cudaError_t error) {
  const Words* words = find_words(error);
  return words ? words->name : "unrecognized error code";
}
