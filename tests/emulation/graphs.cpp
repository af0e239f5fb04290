// Capturing streams into graphs, and running these.
#include <utility>

#include "runtime.h"
#include "streams.h"

using namespace lab::emulation;

namespace {

/// All that joined has been waited for by the stream where the capture began.
bool is_joined(const Capture& capture) {
  const Capture::Progress& seen = capture.progress.at(capture.origin);
  for (const auto& [stream, progress] : capture.progress) {
    const auto done = progress.find(stream);
    if (done == progress.end() || stream == capture.origin) continue;
    const auto found = seen.find(stream);
    if (found == seen.end() || found->second < done->second) return false;
  }
  return true;
}

}  // namespace

cudaError_t cudaStreamBeginCapture(cudaStream_t handle, cudaStreamCaptureMode mode) {
  return call([&] {
    CUstream_st* stream = find_stream(handle);
    if (!stream) return cudaErrorInvalidResourceHandle;
    if (stream->is_default) return cudaErrorStreamCaptureUnsupported;
    if (stream->capture) return cudaErrorIllegalState;
    stream->capture = std::make_shared<Capture>();
    stream->capture->origin = stream;
    stream->capture->mode = mode;
    stream->capture->thread = std::this_thread::get_id();
    stream->capture->progress[stream] = {};
    return cudaSuccess;
  });
}

cudaError_t cudaStreamEndCapture(cudaStream_t handle, cudaGraph_t* graph) {
  return call([&] {
    CUstream_st* stream = find_stream(handle);
    if (!stream || !graph) return cudaErrorInvalidResourceHandle;
    *graph = nullptr;
    if (!stream->capture) return cudaErrorIllegalState;
    const std::shared_ptr<Capture> capture = stream->capture;
    if (capture->origin != stream) return cudaErrorStreamCaptureUnmatched;
    if (capture->mode != cudaStreamCaptureModeRelaxed &&
        capture->thread != std::this_thread::get_id()) {
      return cudaErrorStreamCaptureWrongThread;
    }
    for (const auto& [member, progress] : capture->progress) {
      if (find_stream(member)) member->capture.reset();
    }
    if (!capture->valid) return cudaErrorStreamCaptureInvalidated;
    if (!is_joined(*capture)) return cudaErrorStreamCaptureUnjoined;
    *graph = new CUgraph_st{std::move(capture->work)};
    return cudaSuccess;
  });
}

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  return call([&] {
    if (!mode) return cudaErrorInvalidValue;
    std::swap(*mode, thread_capture_mode());
    return cudaSuccess;
  });
}

cudaError_t cudaStreamIsCapturing(cudaStream_t handle, cudaStreamCaptureStatus* status) {
  return call([&] {
    CUstream_st* stream = find_stream(handle);
    if (!stream || !status) return cudaErrorInvalidResourceHandle;
    *status = cudaStreamCaptureStatusNone;
    if (stream->capture) {
      *status = stream->capture->valid ? cudaStreamCaptureStatusActive
                                       : cudaStreamCaptureStatusInvalidated;
    }
    return cudaSuccess;
  });
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph,
                                 unsigned long long) {
  return call([&] {
    if (!executable || !graph) return cudaErrorInvalidValue;
    *executable =
        new CUgraphExec_st{std::make_shared<const std::vector<std::function<void()>>>(graph->work)};
    return cudaSuccess;
  });
}

cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* executable, cudaGraph_t graph,
                                          unsigned long long flags) {
  return cudaGraphInstantiate(executable, graph, flags);
}

cudaError_t cudaGraphUpload(cudaGraphExec_t executable, cudaStream_t stream) {
  return call(
      [&] { return executable && find_stream(stream) ? cudaSuccess : cudaErrorInvalidValue; });
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t handle) {
  return call([&] {
    CUstream_st* stream = find_stream(handle);
    if (!executable || !stream) return cudaErrorInvalidValue;
    return enqueue(stream, [work = executable->work] {
      for (const auto& step : *work) step();
    });
  });
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  return call_without_throwing([&] {
    delete graph;
    return cudaSuccess;
  });
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  return call_without_throwing([&] {
    delete executable;
    return cudaSuccess;
  });
}

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, size_t* count) {
  return call([&] {
    if (!graph || nodes || !count) return cudaErrorInvalidValue;
    *count = graph->work.size();
    return cudaSuccess;
  });
}
