// Streams and events of the GPU, with owners.
#pragma once

#include <cuda_runtime.h>

#include <chrono>

namespace lab::nccl {

/// A point in the GPU's work.
class Event {
 public:
  Event();
  ~Event();
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  cudaEvent_t get() const { return event_; }
  /// After all work launched on `stream`.
  void record(cudaStream_t stream);
  /// After all kernels and copies of the workbook.
  void record_computation();
  /// Whether the GPU has reached it. Throws Error if the GPU has failed.
  bool happened() const;

 private:
  cudaEvent_t event_ = nullptr;
};

/// Work that runs in order, in parallel with other streams.
class Stream {
 public:
  Stream();
  /// Waits briefly for remaining work.
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  cudaStream_t get() const { return stream_; }
  /// Work launched from now on begins after the event.
  void follow(const Event& event);

 private:
  cudaStream_t stream_ = nullptr;
};

/// Makes the workbook's GPU the calling thread's GPU.
void activate_gpu();
/// The same, but throws Error while work is being recorded, because messages cannot be part of a
/// recording.
void activate_gpu_for_messages();

}  // namespace lab::nccl
