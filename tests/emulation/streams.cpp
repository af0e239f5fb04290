// See streams.h: queues, and the order between streams.
#include "streams.h"

#include <utility>

#include "order.h"
#include "runtime.h"
#include "settings.h"

namespace lab::emulation {
namespace {

struct Streams {
  std::map<int, CUstream_st> defaults;               // by device
  std::vector<std::unique_ptr<CUstream_st>> others;  // in the order in which they were made
};

Streams& streams() {
  static Streams& result = *new Streams;  // never destroyed: streams may be used at exit
  return result;
}

/// The default stream of a device and its other streams wait for each other, unless these are
/// non-blocking.
void order_with_default(CUstream_st* stream) {
  if (stream->non_blocking) return;
  const auto wait_for = [stream](CUstream_st& other) {
    if (&other == stream || other.device != stream->device || other.queue.empty()) return;
    put_wait(stream, put_mark(&other));
  };
  if (!stream->is_default) {
    if (auto it = streams().defaults.find(stream->device); it != streams().defaults.end()) {
      wait_for(it->second);
    }
    return;
  }
  for (const auto& other : streams().others) {
    if (!other->non_blocking) wait_for(*other);
  }
}

/// Returns whether the work was ready.
bool run_next(CUstream_st* stream) {
  std::function<void()> work = std::move(stream->queue.front());
  stream->queue.pop_front();
  try {
    work();
  } catch (const NotReady&) {
    stream->queue.push_front(std::move(work));
    return false;
  } catch (...) {
    drop_everything();
    throw;
  }
  return true;
}

}  // namespace

CUstream_st* find_stream(cudaStream_t handle) {
  if (handle == nullptr) {
    CUstream_st& stream = streams().defaults[current_device()];
    stream.device = current_device();
    stream.is_default = true;
    return &stream;
  }
  for (const auto& stream : streams().others) {
    if (stream.get() == handle) return handle;
  }
  for (auto& [device, stream] : streams().defaults) {
    if (&stream == handle) return handle;
  }
  return nullptr;
}

cudaError_t enqueue(CUstream_st* stream, std::function<void()> work) {
  if (stream->capture) {
    Capture& capture = *stream->capture;
    if (!capture.valid) return cudaErrorStreamCaptureInvalidated;
    capture.work.push_back(std::move(work));
    ++capture.progress[stream][stream];
    return cudaSuccess;
  }
  if (stream->is_default) {
    if (const cudaError_t error = check_default_stream(); error != cudaSuccess) return error;
  }
  order_with_default(stream);
  stream->queue.push_back(std::move(work));
  return cudaSuccess;
}

void run_stream(CUstream_st* stream) {
  while (!stream->queue.empty() && run_next(stream)) continue;
}

void run_device(int device) {
  std::vector<CUstream_st*> list;
  for (auto& [index, stream] : streams().defaults) list.push_back(&stream);
  for (const auto& stream : streams().others) list.push_back(stream.get());
  std::vector<unsigned> order;
  fill_order(order, static_cast<unsigned>(list.size()), 0);
  for (const unsigned i : order) {
    if (list[i]->device == device) run_stream(list[i]);
  }
}

std::shared_ptr<Mark> put_mark(CUstream_st* stream) {
  auto mark = std::make_shared<Mark>();
  mark->stream = stream;
  stream->queue.push_back([mark] {
    mark->reached = true;
    mark->when = std::chrono::steady_clock::now();
  });
  return mark;
}

void put_wait(CUstream_st* stream, std::shared_ptr<Mark> mark) {
  stream->queue.push_back([mark = std::move(mark)] {
    if (!run_until(*mark)) throw NotReady{};
  });
}

bool run_until(const Mark& mark) {
  while (!mark.reached) {
    // After an error the stream may have been emptied, or be gone.
    if (!find_stream(mark.stream) || mark.stream->queue.empty()) return true;
    if (!run_next(mark.stream)) return false;
  }
  return true;
}

void drop_everything() {
  for (auto& [device, stream] : streams().defaults) stream.queue.clear();
  for (const auto& stream : streams().others) {
    stream->queue.clear();
    stream->capture.reset();
  }
}

cudaStreamCaptureMode& thread_capture_mode() {
  static thread_local cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
  return mode;
}

cudaError_t check_no_capture() {
  if (thread_capture_mode() == cudaStreamCaptureModeRelaxed) return cudaSuccess;
  for (const auto& stream : streams().others) {
    if (!stream->capture || stream->capture->mode == cudaStreamCaptureModeRelaxed) continue;
    Capture& capture = *stream->capture;
    const bool heeds_others = thread_capture_mode() == cudaStreamCaptureModeGlobal &&
                              capture.mode == cudaStreamCaptureModeGlobal;
    if (capture.thread != std::this_thread::get_id() && !heeds_others) continue;
    capture.valid = false;
    return cudaErrorStreamCaptureUnsupported;
  }
  return cudaSuccess;
}

cudaError_t check_default_stream() {
  for (const auto& stream : streams().others) {
    if (!stream->capture || stream->non_blocking) continue;
    stream->capture->valid = false;
    return cudaErrorStreamCaptureImplicit;
  }
  return cudaSuccess;
}

}  // namespace lab::emulation

using namespace lab::emulation;

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  return call([&] {
    if (!stream || flags > cudaStreamNonBlocking) return cudaErrorInvalidValue;
    auto made = std::make_unique<CUstream_st>();
    made->device = current_device();
    made->non_blocking = flags == cudaStreamNonBlocking;
    *stream = made.get();
    streams().others.push_back(std::move(made));
    return cudaSuccess;
  });
}

cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  return cudaStreamCreateWithFlags(stream, cudaStreamDefault);
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int) {
  return cudaStreamCreateWithFlags(stream, flags);
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  return call([&] {
    *least = *greatest = 0;
    return cudaSuccess;
  });
}

cudaError_t cudaStreamDestroy(cudaStream_t handle) {
  return call_without_throwing([&] {
    CUstream_st* stream = find_stream(handle);
    if (!handle || !stream) return cudaErrorInvalidResourceHandle;
    run_stream(stream);
    std::erase_if(streams().others, [&](const auto& other) { return other.get() == stream; });
    return cudaSuccess;
  });
}

cudaError_t cudaStreamSynchronize(cudaStream_t handle) {
  return call_until_ready([&](bool& ready) {
    CUstream_st* stream = find_stream(handle);
    if (!stream) return cudaErrorInvalidResourceHandle;
    if (stream->capture) {
      stream->capture->valid = false;
      return cudaErrorStreamCaptureUnsupported;
    }
    if (const cudaError_t error = check_no_capture(); error != cudaSuccess) return error;
    order_with_default(stream);
    run_stream(stream);
    ready = stream->queue.empty();
    if (ready) ++counts().waits;
    return cudaSuccess;
  });
}

cudaError_t cudaStreamQuery(cudaStream_t handle) {
  return call([&] {
    CUstream_st* stream = find_stream(handle);
    if (!stream) return cudaErrorInvalidResourceHandle;
    if (stream->capture) {
      stream->capture->valid = false;
      return cudaErrorStreamCaptureUnsupported;
    }
    if (stream->queue.empty()) return cudaSuccess;
    // A step at a time: a host that polls gets there.
    run_next(stream);
    return cudaErrorNotReady;
  });
}

cudaError_t cudaDeviceSynchronize() {
  return call([] {
    if (const cudaError_t error = check_no_capture(); error != cudaSuccess) return error;
    ++counts().waits;
    run_device(current_device());
    return cudaSuccess;
  });
}

cudaError_t cudaLaunchHostFunc(cudaStream_t handle, cudaHostFn_t function, void* data) {
  return call([&] {
    CUstream_st* stream = find_stream(handle);
    if (!stream) return cudaErrorInvalidResourceHandle;
    return enqueue(stream, [function, data] { function(data); });
  });
}
