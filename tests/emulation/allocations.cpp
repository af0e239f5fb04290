// cudaMalloc and its like.
#include "device_memory.h"
#include "host_memory.h"
#include "runtime.h"
#include "settings.h"
#include "shadow.h"
#include "streams.h"

using namespace lab::emulation;

namespace {

void release(const Allocation& allocation) {
  forget_written(reinterpret_cast<const void*>(allocation.begin), allocation.bytes);
  DeviceMemory::instance().release(allocation.begin);
}

}  // namespace

cudaError_t cudaMalloc(void** address, size_t bytes) {
  return call([&] {
    if (!address) return cudaErrorInvalidValue;
    *address = nullptr;
    if (const cudaError_t error = check_no_capture(); error != cudaSuccess) return error;
    if (bytes == 0) return cudaSuccess;
    const uintptr_t begin = DeviceMemory::instance().allocate(bytes, current_device());
    if (begin == 0) return cudaErrorMemoryAllocation;
    ++counts().allocations;
    *address = reinterpret_cast<void*>(begin);
    return cudaSuccess;
  });
}

cudaError_t cudaFree(void* address) {
  return call_without_throwing([&] {
    if (!address) return cudaSuccess;
    const auto begin = reinterpret_cast<uintptr_t>(address);
    const Allocation* allocation = DeviceMemory::instance().before(begin);
    if (!allocation || allocation->begin != begin) return cudaErrorInvalidValue;
    if (const cudaError_t error = check_no_capture(); error != cudaSuccess) return error;
    const Allocation released = *allocation;
    // What still runs may use it: the memory goes only after that.
    try {
      run_device(released.device);
    } catch (...) {
      release(released);
      throw;
    }
    release(released);
    return cudaSuccess;
  });
}

cudaError_t cudaMallocHost(void** address, size_t bytes, unsigned) {
  return call([&] {
    if (!address) return cudaErrorInvalidValue;
    if (const cudaError_t error = check_no_capture(); error != cudaSuccess) return error;
    *address = bytes == 0 ? nullptr : HostMemory::instance().allocate(bytes);
    return cudaSuccess;
  });
}

cudaError_t cudaHostAlloc(void** address, size_t bytes, unsigned flags) {
  return cudaMallocHost(address, bytes, flags);
}

cudaError_t cudaFreeHost(void* address) {
  return call_without_throwing([&] {
    if (!address) return cudaSuccess;
    if (!HostMemory::instance().is_pinned(address)) return cudaErrorInvalidValue;
    run_device(current_device());
    return HostMemory::instance().release(address) ? cudaSuccess : cudaErrorInvalidValue;
  });
}

cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  return call([&] {
    *total = settings().total_memory;
    *free = *total - std::min(*total, DeviceMemory::instance().used(current_device()));
    return cudaSuccess;
  });
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* address) {
  return call([&] {
    *attributes = {cudaMemoryTypeUnregistered, -2, nullptr, const_cast<void*>(address)};
    const Allocation* found =
        DeviceMemory::instance().find(reinterpret_cast<uintptr_t>(address), 1);
    if (found) {
      *attributes = {cudaMemoryTypeDevice, found->device, const_cast<void*>(address), nullptr};
    } else if (HostMemory::instance().is_pinned(address)) {
      attributes->type = cudaMemoryTypeHost;
      attributes->device = current_device();
      attributes->devicePointer = const_cast<void*>(address);
    }
    return cudaSuccess;
  });
}
