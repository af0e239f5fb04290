#include "common/gpu/nccl/stream.h"

#include "common/error.h"
#include "common/gpu/cuda/check.h"
#include "common/gpu/cuda_accelerator.h"
#include "common/gpu/nccl/patience.h"

namespace lab::nccl {

using cuda::check;

Event::Event() {
  check(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), "cudaEventCreateWithFlags",
        "preparing a message between GPUs");
}

Event::~Event() { static_cast<void>(cudaEventDestroy(event_)); }

void Event::record(cudaStream_t stream) {
  check(cudaEventRecord(event_, stream), "cudaEventRecord", "a message between GPUs");
}

void Event::record_computation() { record(cuda::cuda_accelerator().context().stream()); }

bool Event::happened() const {
  const cudaError_t status = cudaEventQuery(event_);
  if (status == cudaErrorNotReady) {
    static_cast<void>(cudaGetLastError());  // not an error: clear it for the next call
    return false;
  }
  check(status, "cudaEventQuery", "waiting for a message between GPUs");
  return true;
}

Stream::Stream() {
  check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreateWithFlags",
        "preparing messages between GPUs");
}

Stream::~Stream() {
  const Patience patience(std::chrono::seconds(1));
  while (cudaStreamQuery(stream_) == cudaErrorNotReady && !patience.over()) patience.pause();
  static_cast<void>(cudaGetLastError());
  static_cast<void>(cudaStreamDestroy(stream_));
}

void Stream::follow(const Event& event) {
  check(cudaStreamWaitEvent(stream_, event.get(), 0), "cudaStreamWaitEvent",
        "a message between GPUs");
}

void activate_gpu() { cuda::cuda_accelerator().context().activate(); }

void activate_gpu_for_messages() {
  require(
      !cuda::cuda_accelerator().context().recording(),
      "messages between GPUs cannot be recorded: exchange them before or after the recorded work");
  activate_gpu();
}

}  // namespace lab::nccl
