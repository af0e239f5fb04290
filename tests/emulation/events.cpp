// Events: the order between streams, and between a stream and the host.
#include <algorithm>
#include <set>

#include "runtime.h"
#include "settings.h"
#include "streams.h"

using namespace lab::emulation;

namespace {

std::set<CUevent_st*>& events() {
  static std::set<CUevent_st*> result;
  return result;
}

bool exists(cudaEvent_t event) { return events().contains(event); }

bool is_captured(const CUevent_st& event) { return !event.capture.expired(); }

/// The waiting stream becomes part of the capture, if it is not yet.
cudaError_t wait_in_capture(CUstream_st* stream, const CUevent_st& event) {
  const auto capture = event.capture.lock();
  if (!capture) {
    // A captured stream may not wait for what is not captured.
    stream->capture->valid = false;
    return cudaErrorStreamCaptureIsolation;
  }
  if (stream->capture && stream->capture != capture) {
    stream->capture->valid = false;
    capture->valid = false;
    return cudaErrorStreamCaptureMerge;
  }
  stream->capture = capture;
  Capture::Progress& progress = capture->progress[stream];
  for (const auto& [other, count] : event.progress) {
    progress[other] = std::max(progress[other], count);
  }
  return capture->valid ? cudaSuccess : cudaErrorStreamCaptureInvalidated;
}

}  // namespace

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  return call([&] {
    if (!event) return cudaErrorInvalidValue;
    *event = new CUevent_st;
    (*event)->device = current_device();
    (*event)->timing = (flags & cudaEventDisableTiming) == 0;
    events().insert(*event);
    return cudaSuccess;
  });
}

cudaError_t cudaEventCreate(cudaEvent_t* event) { return cudaEventCreateWithFlags(event, 0); }

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  return call_without_throwing([&] {
    if (events().erase(event) == 0) return cudaErrorInvalidResourceHandle;
    delete event;
    return cudaSuccess;
  });
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t handle) {
  return call([&] {
    CUstream_st* stream = find_stream(handle);
    if (!stream || !exists(event)) return cudaErrorInvalidResourceHandle;
    if (stream->device != event->device) return cudaErrorInvalidResourceHandle;
    event->capture = stream->capture;
    if (stream->capture) {
      event->progress = stream->capture->progress[stream];
      return stream->capture->valid ? cudaSuccess : cudaErrorStreamCaptureInvalidated;
    }
    event->mark = put_mark(stream);
    return cudaSuccess;
  });
}

cudaError_t cudaStreamWaitEvent(cudaStream_t handle, cudaEvent_t event, unsigned) {
  return call([&] {
    CUstream_st* stream = find_stream(handle);
    if (!stream || !exists(event)) return cudaErrorInvalidResourceHandle;
    if (stream->capture || is_captured(*event)) return wait_in_capture(stream, *event);
    if (event->mark && !event->mark->reached) put_wait(stream, event->mark);
    return cudaSuccess;
  });
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  return call_until_ready([&](bool& ready) {
    if (!exists(event)) return cudaErrorInvalidResourceHandle;
    if (is_captured(*event)) return cudaErrorCapturedEvent;
    if (const cudaError_t error = check_no_capture(); error != cudaSuccess) return error;
    if (event->mark) ready = run_until(*event->mark);
    if (ready) ++counts().waits;
    return cudaSuccess;
  });
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  return call([&] {
    if (!exists(event)) return cudaErrorInvalidResourceHandle;
    if (is_captured(*event)) return cudaErrorCapturedEvent;
    if (!event->mark || event->mark->reached) return cudaSuccess;
    // A step at a time: a host that polls gets there.
    cudaStreamQuery(event->mark->stream);
    return event->mark->reached ? cudaSuccess : cudaErrorNotReady;
  });
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end) {
  return call([&] {
    if (!exists(start) || !exists(end) || !start->timing || !end->timing || !start->mark ||
        !end->mark) {
      return cudaErrorInvalidResourceHandle;
    }
    if (!start->mark->reached || !end->mark->reached) return cudaErrorNotReady;
    const std::chrono::duration<float, std::milli> time = end->mark->when - start->mark->when;
    *milliseconds = time.count();
    return cudaSuccess;
  });
}
