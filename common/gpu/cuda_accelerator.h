// The implementation of Accelerator, for CUDA code that needs its stream.
#pragma once

#include <memory>
#include <string>

#include "common/gpu/cuda/context.h"
#include "common/gpu/cuda/pinned_pool.h"
#include "common/gpu/cuda/staged_copy.h"
#include "common/gpu/kernels/cuda_kernels.h"
#include "common/tensor/accelerator.h"

namespace lab::cuda {

class CudaAccelerator final : public Accelerator {
 public:
  explicit CudaAccelerator(int index);

  int index() const override { return context_.index(); }
  std::string name() const override { return name_; }
  size_t free_bytes() const override;

  void* allocate(size_t bytes) override;
  void release(void* memory) noexcept override;
  void* allocate_pinned(size_t bytes) override;
  void release_pinned(void* memory) noexcept override;

  void copy(const MemoryCopy& copy) override;
  void fill(float* data, int64_t rows, int64_t columns, int64_t row_stride, float value) override;
  void convert(const Tensor& from, const Tensor& to) override;
  void synchronize() override;
  void set_precision(Precision precision) override;
  bool supports(Precision precision) const override { return context_.supports(precision); }
  Precision precision() const override { return context_.precision(); }
  std::unique_ptr<RecordedWork> record(const std::function<void()>& work) override;

  const Kernels& kernels() const override;

  Context& context() { return context_; }

 private:
  Context context_;
  StagedCopy staged_;
  PinnedPool pinned_;
  std::unique_ptr<const Kernels> kernels_;
  std::string name_;
};

/// The GPU of this process: accelerator(), which has this type in every program with CUDA code.
CudaAccelerator& cuda_accelerator();

}  // namespace lab::cuda
