// Copies between GPU memory and ordinary host memory, through pinned buffers.
#pragma once

#include <cuda_runtime.h>

#include <mutex>

#include "common/tensor/accelerator.h"

namespace lab::cuda {

/// The GPU can only access host memory that the operating system promises not to move: pinned
/// memory. Ordinary memory is copied piece by piece through two pinned buffers, so that the CPU
/// fills (or empties) one while the GPU works on the other.
///
/// Both methods return when the ordinary memory has been read, or written. Threads take turns.
class StagedCopy {
 public:
  static constexpr size_t kBufferBytes = size_t{4} << 20;

  explicit StagedCopy(cudaStream_t stream);
  ~StagedCopy();
  StagedCopy(const StagedCopy&) = delete;
  StagedCopy& operator=(const StagedCopy&) = delete;

  void to_gpu(const MemoryCopy& copy);
  void from_gpu(const MemoryCopy& copy);

 private:
  struct Buffer {
    void* memory = nullptr;
    cudaEvent_t finished = nullptr;  // when the GPU's last copy from or to it is done
  };
  Buffer& next_buffer();

  std::mutex mutex_;
  cudaStream_t stream_;
  Buffer buffers_[2];
  int next_ = 0;
};

}  // namespace lab::cuda
