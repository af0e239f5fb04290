// Copies and memsets: checked when they are enqueued, done when the stream runs.
#include <algorithm>
#include <cstring>

#include "device_limits.h"
#include "device_memory.h"
#include "host_memory.h"
#include "runtime.h"
#include "settings.h"
#include "shadow.h"
#include "streams.h"

using namespace lab::emulation;

namespace {

/// Rows of `width` bytes; a plain copy has one.
struct Copy {
  char* to;
  size_t to_pitch;
  const char* from;
  size_t from_pitch;
  size_t width;
  size_t height;

  size_t from_bytes() const { return height == 0 ? 0 : (height - 1) * from_pitch + width; }
  size_t to_bytes() const { return height == 0 ? 0 : (height - 1) * to_pitch + width; }
};

bool on_device(const void* address) {
  return DeviceMemory::instance().contains(reinterpret_cast<uintptr_t>(address));
}

bool is_allocated(const void* address, size_t bytes) {
  return DeviceMemory::instance().find(reinterpret_cast<uintptr_t>(address), bytes) != nullptr;
}

/// Of a copy of rows; a plain one has no pitches.
cudaError_t check_pitches(const Copy& copy) {
  const auto [smaller, larger] = std::minmax(copy.to_pitch, copy.from_pitch);
  if (copy.width > smaller) return cudaErrorInvalidPitchValue;
  return larger > kMaxPitch ? cudaErrorInvalidValue : cudaSuccess;
}

cudaError_t check(const Copy& copy, cudaMemcpyKind kind) {
  if (copy.from_bytes() == 0 || copy.width == 0) return cudaSuccess;
  const bool to_device = on_device(copy.to);
  const bool from_device = on_device(copy.from);
  if (to_device && !is_allocated(copy.to, copy.to_bytes())) return cudaErrorInvalidValue;
  if (from_device && !is_allocated(copy.from, copy.from_bytes())) return cudaErrorInvalidValue;
  if (kind == cudaMemcpyDefault) return cudaSuccess;
  const bool wants_to = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
  const bool wants_from = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
  return to_device == wants_to && from_device == wants_from ? cudaSuccess : cudaErrorInvalidValue;
}

void run(const Copy& copy) {
  ++counts().copies;
  for (size_t row = 0; row < copy.height; ++row) {
    char* to = copy.to + row * copy.to_pitch;
    const char* from = copy.from + row * copy.from_pitch;
    std::memmove(to, from, copy.width);
    if (on_device(from) && on_device(to)) {
      copy_written(to, from, copy.width);
    } else if (on_device(to)) {
      mark_written(to, copy.width);
    }
  }
}

/// Enqueues a copy. From pageable memory CUDA takes the bytes before it returns, and to pageable
/// memory it waits until they are there; only with page-locked memory is a copy asynchronous.
cudaError_t copy_async(const Copy& copy, cudaMemcpyKind kind, cudaStream_t handle) {
  CUstream_st* stream = find_stream(handle);
  if (!stream) return cudaErrorInvalidResourceHandle;
  if (const cudaError_t error = check(copy, kind); error != cudaSuccess) return error;
  if (copy.width == 0 || copy.height == 0) return cudaSuccess;
  const bool from_pageable = !on_device(copy.from) && !HostMemory::instance().is_pinned(copy.from);
  const bool to_pageable = !on_device(copy.to) && !HostMemory::instance().is_pinned(copy.to);
  if (from_pageable && !stream->capture) {
    auto bytes = std::make_shared<std::vector<char>>(copy.from, copy.from + copy.from_bytes());
    return enqueue(stream, [copy, bytes] {
      Copy from_staging = copy;
      from_staging.from = bytes->data();
      run(from_staging);
    });
  }
  const cudaError_t error = enqueue(stream, [copy] { run(copy); });
  if (error == cudaSuccess && to_pageable && !stream->capture) run_stream(stream);
  return error;
}

/// In the default stream; waits unless both sides are on the device.
cudaError_t copy_now(const Copy& copy, cudaMemcpyKind kind) {
  if (const cudaError_t error = check_no_capture(); error != cudaSuccess) return error;
  const cudaError_t error = copy_async(copy, kind, nullptr);
  if (error != cudaSuccess || (on_device(copy.from) && on_device(copy.to))) return error;
  ++counts().waits;
  run_stream(find_stream(nullptr));
  return cudaSuccess;
}

Copy plain(void* to, const void* from, size_t bytes) {
  return {static_cast<char*>(to), bytes, static_cast<const char*>(from), bytes, bytes, 1};
}

Copy rows(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width,
          size_t height) {
  return {
      static_cast<char*>(to), to_pitch, static_cast<const char*>(from), from_pitch, width, height};
}

}  // namespace

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  return call([&] { return copy_async(plain(to, from, bytes), kind, stream); });
}

cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  return call([&] { return copy_now(plain(to, from, bytes), kind); });
}

cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch,
                              size_t width, size_t height, cudaMemcpyKind kind,
                              cudaStream_t stream) {
  return call([&] {
    const Copy copy = rows(to, to_pitch, from, from_pitch, width, height);
    if (const cudaError_t error = check_pitches(copy); error != cudaSuccess) return error;
    return copy_async(copy, kind, stream);
  });
}

cudaError_t cudaMemcpy2D(void* to, size_t to_pitch, const void* from, size_t from_pitch,
                         size_t width, size_t height, cudaMemcpyKind kind) {
  return call([&] {
    const Copy copy = rows(to, to_pitch, from, from_pitch, width, height);
    if (const cudaError_t error = check_pitches(copy); error != cudaSuccess) return error;
    return copy_now(copy, kind);
  });
}

cudaError_t cudaMemsetAsync(void* address, int value, size_t bytes, cudaStream_t handle) {
  return call([&] {
    CUstream_st* stream = find_stream(handle);
    if (!stream) return cudaErrorInvalidResourceHandle;
    if (bytes == 0) return cudaSuccess;
    if (!is_allocated(address, bytes)) return cudaErrorInvalidValue;
    return enqueue(stream, [=] {
      ++counts().memsets;
      std::memset(address, value, bytes);
      mark_written(address, bytes);
    });
  });
}

cudaError_t cudaMemset(void* address, int value, size_t bytes) {
  return call([&] {
    if (const cudaError_t error = check_no_capture(); error != cudaSuccess) return error;
    return cudaMemsetAsync(address, value, bytes, nullptr);
  });
}
