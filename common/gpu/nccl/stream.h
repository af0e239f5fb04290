// Streams and events of the GPU, with an owner.
#pragma once

#include <cuda_runtime.h>

#include <chrono>

namespace lab::nccl {

/// A point in what was asked of the GPU.
class Event {
 public:
  Event();
  ~Event();
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  cudaEvent_t get() const { return event_; }
  /// Behind all that has been asked of `stream`.
  void record(cudaStream_t stream);
  /// Behind all kernels and copies of the workbook.
  void record_computation();
  /// Whether the GPU has got there. Throws Error when the GPU has failed.
  bool happened() const;

 private:
  cudaEvent_t event_ = nullptr;
};

/// Work in the order in which it was asked for, beside that of other streams.
class Stream {
 public:
  Stream();
  /// Waits a moment for what is left.
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  cudaStream_t get() const { return stream_; }
  /// What is asked from now on begins after the event.
  void follow(const Event& event);

 private:
  cudaStream_t stream_ = nullptr;
};

/// Makes the workbook's GPU that of the calling thread.
void activate_gpu();
/// The same, and throws Error while work is being recorded: messages are no part of what can be
/// repeated.
void activate_gpu_for_messages();

}  // namespace lab::nccl
