// What all CUDA code of this process shares: a GPU, a stream, a cuBLAS handle, an allocator.
#pragma once

#include <cublas_v2.h>
#include <cuda_runtime.h>

#include <cstddef>

#include "common/gpu/cuda/caching_allocator.h"
#include "common/tensor/accelerator.h"

namespace lab::cuda {

class Context {
 public:
  /// Opens GPU `index`. Throws Error, saying why, when that fails.
  explicit Context(int index);
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  /// Makes this the GPU of the calling thread; every thread starts with GPU 0.
  void activate() const;

  int index() const { return index_; }
  /// All kernels, products and copies are launched on this stream and run in that order. Work on
  /// other streams is not ordered with it unless told to wait.
  cudaStream_t stream() const { return stream_; }
  /// Its workspace is fixed, so that products give the same bits each time and can be recorded.
  cublasHandle_t blas() const { return blas_; }
  CachingAllocator& memory() const { return memory_; }

  /// Of matrix products.
  Precision precision() const { return precision_; }
  /// kBfloat16 needs tensor cores that support it.
  bool supports(Precision precision) const;
  /// Throws Error for an unsupported one.
  void set_precision(Precision precision);

  /// Of the GPU. Each runs a few blocks of threads at the same time.
  int multiprocessors() const { return multiprocessors_; }

  /// Whether the stream records instead of running (see RecordedWork).
  bool recording() const { return recording_; }
  void set_recording(bool recording) { recording_ = recording; }

 private:
  Context(int index, CachingAllocator::Keep keep);

  int index_;
  cudaStream_t stream_ = nullptr;
  cublasHandle_t blas_ = nullptr;
  void* blas_workspace_ = nullptr;
  mutable CachingAllocator memory_;
  bool recording_ = false;
  Precision precision_ = Precision::kFloat32;
  int multiprocessors_ = 0;
};

/// The context of accelerator(). Throws Error if there is no GPU.
Context& current_context();

/// GPU memory for the intermediate results of one operation. It may be released as soon as the
/// operation has been launched: see CachingAllocator.
template <typename T>
class Scratch {
 public:
  Scratch(const Context& context, size_t count)
      : memory_(context.memory()), data_(static_cast<T*>(memory_.allocate(count * sizeof(T)))) {}
  ~Scratch() { memory_.release(data_); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  T* data() const { return data_; }

 private:
  CachingAllocator& memory_;
  T* data_;
};

}  // namespace lab::cuda
