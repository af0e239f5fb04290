// Devices, and the errors of a machine that has none.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "device_limits.h"
#include "emulated/runtime_api.h"
#include "runtime.h"
#include "settings.h"

namespace lab::emulation {

int& current_device() {
  static thread_local int device = 0;
  return device;
}

int& bus_of_thread() {
  static thread_local int device = -1;
  return device;
}

void set_bus_of_thread(int device) { bus_of_thread() = device; }

cudaError_t driver_state() {
  switch (settings().driver) {
    case Driver::kMissing:  // CUDA says the same of both; the driver's version, 0, tells them apart
    case Driver::kTooOld:
      return cudaErrorInsufficientDriver;
    case Driver::kPresent:
      break;
  }
  return settings().device_count > 0 ? cudaSuccess : cudaErrorNoDevice;
}

namespace {

bool is_device(int device) { return device >= 0 && device < settings().device_count; }

}  // namespace
}  // namespace lab::emulation

using namespace lab::emulation;

cudaError_t cudaGetDeviceCount(int* count) {
  *count = 0;
  return call([&] {
    *count = settings().device_count;
    return cudaSuccess;
  });
}

cudaError_t cudaSetDevice(int device) {
  return call([&] {
    if (!is_device(device)) return cudaErrorInvalidDevice;
    current_device() = device;
    return cudaSuccess;
  });
}

cudaError_t cudaGetDevice(int* device) {
  return call([&] {
    *device = current_device();
    return cudaSuccess;
  });
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  return call([&] {
    if (!properties) return cudaErrorInvalidValue;
    if (!is_device(device)) return cudaErrorInvalidDevice;
    cudaDeviceProp& p = *properties = {};
    std::strcpy(p.name, "emulated device");
    p.uuid.bytes[15] = static_cast<char>(device + 1);
    p.totalGlobalMem = settings().total_memory;
    p.sharedMemPerBlock = kSharedBytes;
    p.sharedMemPerBlockOptin = kSharedBytesOptIn;
    p.sharedMemPerMultiprocessor = kSharedBytesOptIn + 1024;
    p.regsPerBlock = 65536;
    p.warpSize = 32;
    p.maxThreadsPerBlock = kMaxThreads;
    p.maxThreadsPerMultiProcessor = 2048;
    std::copy_n(std::to_array({1024, 1024, 64}).data(), 3, p.maxThreadsDim);
    std::copy_n(std::to_array({0x7fffffff, 65535, 65535}).data(), 3, p.maxGridSize);
    p.major = settings().major;
    p.minor = settings().minor;
    p.multiProcessorCount = kMultiprocessors;
    p.pciBusID = device + 1;
    p.memoryBusWidth = 256;
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  return call([&] {
    if (!value) return cudaErrorInvalidValue;
    if (!is_device(device)) return cudaErrorInvalidDevice;
    switch (attribute) {
      case cudaDevAttrMaxThreadsPerBlock:
        *value = kMaxThreads;
        return cudaSuccess;
      case cudaDevAttrMaxSharedMemoryPerBlock:
        *value = kSharedBytes;
        return cudaSuccess;
      case cudaDevAttrMaxSharedMemoryPerBlockOptin:
        *value = kSharedBytesOptIn;
        return cudaSuccess;
      case cudaDevAttrWarpSize:
        *value = 32;
        return cudaSuccess;
      case cudaDevAttrMultiProcessorCount:
        *value = kMultiprocessors;
        return cudaSuccess;
      case cudaDevAttrComputeCapabilityMajor:
        *value = settings().major;
        return cudaSuccess;
      case cudaDevAttrComputeCapabilityMinor:
        *value = settings().minor;
        return cudaSuccess;
      case cudaDevAttrClockRate:
      case cudaDevAttrMemoryClockRate:
        *value = 1000000;  // kHz; nothing runs at it
        return cudaSuccess;
      case cudaDevAttrGlobalMemoryBusWidth:
        *value = 256;
        return cudaSuccess;
    }
    return cudaErrorInvalidValue;
  });
}

// These two answer without a driver as well.
cudaError_t cudaDriverGetVersion(int* version) {
  if (!version) return noted(cudaErrorInvalidValue);
  const Driver driver = settings().driver;
  *version = driver == Driver::kPresent ? CUDART_VERSION : driver == Driver::kTooOld ? 11040 : 0;
  return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int* version) {
  if (!version) return noted(cudaErrorInvalidValue);
  *version = CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char* id, int length, int device) {
  return call([&] {
    if (!id || length < 13) return cudaErrorInvalidValue;
    if (!is_device(device)) return cudaErrorInvalidDevice;
    const int bus = bus_of_thread() < 0 ? device : bus_of_thread();
    std::snprintf(id, static_cast<size_t>(length), "0000:%02x:00.0", (bus + 1) & 0xff);
    return cudaSuccess;
  });
}
