// Streams, events and pinned memory that end with the test.
#pragma once

#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace lab::emulation {

struct TestStream {
  explicit TestStream(unsigned flags = cudaStreamNonBlocking) {
    EXPECT_EQ(cudaStreamCreateWithFlags(&handle, flags), cudaSuccess);
  }
  TestStream(const TestStream&) = delete;
  TestStream& operator=(const TestStream&) = delete;
  ~TestStream() { cudaStreamDestroy(handle); }
  operator cudaStream_t() const { return handle; }

  cudaStream_t handle = nullptr;
};

struct TestEvent {
  TestEvent() { EXPECT_EQ(cudaEventCreate(&handle), cudaSuccess); }
  TestEvent(const TestEvent&) = delete;
  TestEvent& operator=(const TestEvent&) = delete;
  ~TestEvent() { cudaEventDestroy(handle); }
  operator cudaEvent_t() const { return handle; }

  cudaEvent_t handle = nullptr;
};

/// Page-locked floats, all of one value at first.
struct Pinned {
  Pinned(size_t count, float value) {
    EXPECT_EQ(cudaMallocHost(&data, count * sizeof(float)), cudaSuccess);
    std::fill_n(data, count, value);
  }
  Pinned(const Pinned&) = delete;
  Pinned& operator=(const Pinned&) = delete;
  ~Pinned() { cudaFreeHost(data); }

  float* data = nullptr;
};

}  // namespace lab::emulation
