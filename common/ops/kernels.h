// What a device must implement: the operations of ops.h, after their shapes were checked.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/ops/ops.h"
#include "common/tensor/tensor.h"

namespace lab {

/// One implementation per device. Every method is the function of the same name in ops.h; all
/// tensors fit together and are on this device, as are `tokens`.
class Kernels {
 public:
  virtual ~Kernels() = default;

  virtual void linear_forward(const Tensor& x, const Tensor& weight, const Tensor& y,
                              bool accumulate) const = 0;
  virtual void linear_backward_input(const Tensor& dy, const Tensor& weight, const Tensor& dx,
                                     bool accumulate) const = 0;
  virtual void linear_backward_weight(const Tensor& dy, const Tensor& x,
                                      const Tensor& dweight) const = 0;

  virtual void embedding_forward(std::span<const int32_t> tokens, const Tensor& table,
                                 const Tensor& y) const = 0;
  virtual void embedding_backward(std::span<const int32_t> tokens, const Tensor& dy,
                                  const Tensor& dtable) const = 0;

  virtual void rmsnorm_forward(const Tensor& x, const Tensor& weight, float epsilon,
                               const Tensor& y, const Tensor& inverse_rms) const = 0;
  virtual void rmsnorm_apply(const Tensor& x, const Tensor& weight, const Tensor& inverse_rms,
                             const Tensor& y) const = 0;
  virtual void rmsnorm_backward(const Tensor& dy, const Tensor& x, const Tensor& weight,
                                const Tensor& inverse_rms, const Tensor& dx,
                                const Tensor& dweight) const = 0;

  virtual void rope(const Tensor& x, const Tensor& table, int64_t length, int64_t first_position,
                    Rotation rotation) const = 0;

  virtual void attention_forward(const AttentionShape& shape, const Tensor& q, const Tensor& k,
                                 const Tensor& v, const Tensor& y,
                                 const Tensor& logsumexp) const = 0;
  virtual void attention_backward(const AttentionShape& shape, const Tensor& dy, const Tensor& q,
                                  const Tensor& k, const Tensor& v, const Tensor& y,
                                  const Tensor& logsumexp, const Tensor& dq, const Tensor& dk,
                                  const Tensor& dv) const = 0;

  virtual void swiglu_forward(const Tensor& gate_up, const Tensor& y) const = 0;
  virtual void swiglu_backward(const Tensor& gate_up, const Tensor& dy) const = 0;

  virtual void scale(const Tensor& x, float factor) const = 0;
  virtual void add(const Tensor& x, const Tensor& y) const = 0;
  virtual void add_scaled(const Tensor& x, float factor, const Tensor& y) const = 0;
  virtual std::vector<double> sums_of_squares(std::span<const Tensor> tensors) const = 0;
};

/// The kernels of the processor.
const Kernels& cpu_kernels();

}  // namespace lab
