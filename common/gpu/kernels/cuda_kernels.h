// Kernels on the GPU: turns tensors into pointers and sizes.
#pragma once

#include "common/gpu/cuda/context.h"
#include "common/ops/kernels.h"

namespace lab::cuda {

/// Launches work on the context's stream; only sums_of_squares waits for it.
class CudaKernels final : public Kernels {
 public:
  explicit CudaKernels(const Context& context) : context_(context) {}

  void linear_forward(const Tensor& x, const Tensor& weight, const Tensor& y,
                      bool accumulate) const override;
  void linear_backward_input(const Tensor& dy, const Tensor& weight, const Tensor& dx,
                             bool accumulate) const override;
  void linear_backward_weight(const Tensor& dy, const Tensor& x,
                              const Tensor& dweight) const override;

  void embedding_forward(std::span<const int32_t> tokens, const Tensor& table,
                         const Tensor& y) const override;
  void embedding_backward(std::span<const int32_t> tokens, const Tensor& dy,
                          const Tensor& dtable) const override;

  void rmsnorm_forward(const Tensor& x, const Tensor& weight, float epsilon, const Tensor& y,
                       const Tensor& inverse_rms) const override;
  void rmsnorm_apply(const Tensor& x, const Tensor& weight, const Tensor& inverse_rms,
                     const Tensor& y) const override;
  void rmsnorm_backward(const Tensor& dy, const Tensor& x, const Tensor& weight,
                        const Tensor& inverse_rms, const Tensor& dx,
                        const Tensor& dweight) const override;

  void rope(const Tensor& x, const Tensor& table, int64_t length, int64_t first_position,
            Rotation rotation) const override;

  void attention_forward(const AttentionShape& shape, const Tensor& q, const Tensor& k,
                         const Tensor& v, const Tensor& y, const Tensor& logsumexp) const override;
  void attention_backward(const AttentionShape& shape, const Tensor& dy, const Tensor& q,
                          const Tensor& k, const Tensor& v, const Tensor& y,
                          const Tensor& logsumexp, const Tensor& dq, const Tensor& dk,
                          const Tensor& dv) const override;

  void swiglu_forward(const Tensor& gate_up, const Tensor& y) const override;
  void swiglu_backward(const Tensor& gate_up, const Tensor& dy) const override;

  void scale(const Tensor& x, float factor) const override;
  void add(const Tensor& x, const Tensor& y) const override;
  void add_scaled(const Tensor& x, float factor, const Tensor& y) const override;
  std::vector<double> sums_of_squares(std::span<const Tensor> tensors) const override;

 private:
  const Context& context_;
};

}  // namespace lab::cuda
