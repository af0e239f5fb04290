// What CUDA's error codes mean, and what to do about them.
#include "common/gpu/cuda/check.h"

#include "common/error.h"
#include "common/gpu/cuda/byte_count.h"

namespace lab::cuda {
namespace {

/// 0 if there is no driver.
int driver_version() {
  int version = 0;
  return cudaDriverGetVersion(&version) == cudaSuccess ? version : 0;
}

std::string driver_remedy() {
  if (driver_version() == 0)
    return "there is no NVIDIA driver: install one, until nvidia-smi lists the GPU, or use "
           "--device "
           "cpu";
  int toolkit = 0;
  if (cudaRuntimeGetVersion(&toolkit) != cudaSuccess) toolkit = CUDART_VERSION;
  return fmt::format(
      "the driver knows CUDA up to {}, this program was built with {}: install a newer driver, or "
      "build with an older toolkit, or use --device cpu",
      version_text(driver_version()), version_text(toolkit));
}

std::string memory_left() {
  size_t free = 0;
  size_t total = 0;
  if (cudaMemGetInfo(&free, &total) != cudaSuccess) return "how much is left is unknown";
  return fmt::format("{} of {} are free", byte_count(free), byte_count(total));
}

constexpr const char* kEarlierKernel =
    "an earlier kernel went wrong and this call is only the first to report it: run again with "
    "CUDA_LAUNCH_BLOCKING=1 to see which, or under compute-sanitizer to see where";

std::string remedy(cudaError_t status) {
  switch (status) {
    case cudaErrorNoDevice:
      if (driver_version() == 0) return driver_remedy();
      return "look for the GPU with nvidia-smi; CUDA_VISIBLE_DEVICES may hide it; or use --device "
             "cpu";
    case cudaErrorInsufficientDriver:  // also if there is none at all
    case cudaErrorUnsupportedPtxVersion:
    case cudaErrorSystemDriverMismatch:
      return driver_remedy();
    case cudaErrorInitializationError:
      return "the driver did not start: see nvidia-smi and the kernel's log (dmesg)";
    case cudaErrorDevicesUnavailable:
      return "another process has the GPU for itself: see nvidia-smi, and its compute mode";
    case cudaErrorMemoryAllocation:
      return fmt::format("{}: see nvidia-smi for other processes; use a smaller --batch",
                         memory_left());
    case cudaErrorInvalidDevice:
      return "there is no GPU of that index: nvidia-smi -L lists them, CUDA_VISIBLE_DEVICES limits "
             "them";
    case cudaErrorNoKernelImageForDevice:
    case cudaErrorInvalidDeviceFunction:
      return "the program holds no code for this GPU: configure again with its architecture in "
             "CMAKE_CUDA_ARCHITECTURES";
    case cudaErrorIllegalAddress:
    case cudaErrorMisalignedAddress:
    case cudaErrorLaunchFailure:
    case cudaErrorLaunchTimeout:
    case cudaErrorAssert:
    case cudaErrorIllegalInstruction:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorHardwareStackError:
      return kEarlierKernel;
    case cudaErrorECCUncorrectable:
      return "the GPU's memory is damaged: start the job again on another GPU and tell whoever "
             "runs "
             "the machine";
    case cudaErrorNvlinkUncorrectable:
      return "the link between GPUs failed: start the job again, and tell whoever runs the machine";
    case cudaErrorStreamCaptureUnsupported:
    case cudaErrorStreamCaptureInvalidated:
    case cudaErrorStreamCaptureImplicit:
      return "work that is being recorded must neither wait for the GPU nor copy ordinary memory";
    default:
      return "";
  }
}

}  // namespace

std::string version_text(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

std::string explain(cudaError_t status) {
  const std::string help = remedy(status);
  return fmt::format("{} ({}){}{}", cudaGetErrorString(status), cudaGetErrorName(status),
                     help.empty() ? "" : "; ", help);
}

void fail_call(cudaError_t status, const char* call, const std::string& purpose) {
  static_cast<void>(cudaGetLastError());  // so that the next call does not report it again
  fail("{}: {} failed: {}", purpose, call, explain(status));
}

void fail_call(cublasStatus_t status, const char* call, const std::string& purpose) {
  const cudaError_t earlier = cudaGetLastError();
  fail("{}: {} failed: {}{}{}", purpose, call, cublasGetStatusString(status),
       earlier == cudaSuccess ? "" : "; CUDA says: ",
       earlier == cudaSuccess ? std::string() : explain(earlier));
}

}  // namespace lab::cuda
