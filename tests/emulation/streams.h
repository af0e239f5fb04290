// Streams, events and what they hold. A stream is lazy: what is enqueued waits until the host
// synchronises, and then runs on the thread that does so. A host that forgets to wait finds that
// nothing has happened.
#pragma once

#include <chrono>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <thread>
#include <vector>

#include "emulated/runtime_api.h"

namespace lab::emulation {

/// One cudaEventRecord: events are recorded again and again, waits mean the record made last.
struct Mark {
  cudaStream_t stream = nullptr;
  bool reached = false;
  std::chrono::steady_clock::time_point when;
};

/// What was captured of a stream, and of those that joined it.
struct Capture {
  /// How much of each stream's work comes before a point.
  using Progress = std::map<CUstream_st*, size_t>;

  cudaStream_t origin = nullptr;
  cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
  std::thread::id thread;
  bool valid = true;
  std::vector<std::function<void()>> work;
  std::map<CUstream_st*, Progress> progress;
};

/// Returns the stream for a handle: null is the default stream of the current device. Returns null
/// if it is none of ours.
CUstream_st* find_stream(cudaStream_t handle);

/// Puts work into a stream, or into the graph that is being captured from it. Returns the error of
/// a broken capture.
cudaError_t enqueue(CUstream_st* stream, std::function<void()> work);

/// Thrown by work that cannot be done yet, since it needs another thread of the host: it stays in
/// its stream, to be tried again.
struct NotReady {};

/// Runs what a stream, or all of a device, has queued, up to what is not ready. Throws KernelError.
void run_stream(CUstream_st* stream);
void run_device(int device);

/// Queues a mark after everything in the stream; queues a wait for one.
std::shared_ptr<Mark> put_mark(CUstream_st* stream);
void put_wait(CUstream_st* stream, std::shared_ptr<Mark> mark);
/// Returns whether the mark was reached.
bool run_until(const Mark& mark);

/// Forgets what is queued everywhere, and ends captures.
void drop_everything();

/// What cudaThreadExchangeStreamCaptureMode has set for this thread.
cudaStreamCaptureMode& thread_capture_mode();

/// The error of a call that must not be made while this thread captures, or cudaSuccess. Such a
/// call breaks the capture.
cudaError_t check_no_capture();
/// The same for work in the default stream, which would wait for the captured one.
cudaError_t check_default_stream();

}  // namespace lab::emulation

struct CUstream_st {
  int device = 0;
  bool is_default = false;
  bool non_blocking = false;
  std::deque<std::function<void()>> queue;
  std::shared_ptr<lab::emulation::Capture> capture;
};

struct CUevent_st {
  int device = 0;
  bool timing = true;
  std::shared_ptr<lab::emulation::Mark> mark;
  // Recorded in a stream that is captured: what comes before it.
  std::weak_ptr<lab::emulation::Capture> capture;
  lab::emulation::Capture::Progress progress;
};

struct CUgraph_st {
  std::vector<std::function<void()>> work;
};

struct CUgraphExec_st {
  std::shared_ptr<const std::vector<std::function<void()>>> work;
};
