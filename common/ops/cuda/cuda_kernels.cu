// Hands each operation to the file that holds its kernels.
#include "common/ops/cuda/attention.h"
#include "common/ops/cuda/cuda_kernels.h"
#include "common/ops/cuda/elementwise.h"
#include "common/ops/cuda/matmul.h"
#include "common/ops/cuda/model_ops.h"

namespace lab::cuda {

void CudaKernels::linear_forward(const Tensor& x, const Tensor& weight, const Tensor& y,
                                 bool accumulate) const {
  matmul(context_, Transpose::kNo, Transpose::kYes, matrix(x), matrix(weight),
         accumulate ? 1.0F : 0.0F, matrix(y));
}

void CudaKernels::linear_backward_input(const Tensor& dy, const Tensor& weight, const Tensor& dx,
                                        bool accumulate) const {
  matmul(context_, Transpose::kNo, Transpose::kNo, matrix(dy), matrix(weight),
         accumulate ? 1.0F : 0.0F, matrix(dx));
}

void CudaKernels::linear_backward_weight(const Tensor& dy, const Tensor& x,
                                         const Tensor& dweight) const {
  matmul(context_, Transpose::kYes, Transpose::kNo, matrix(dy), matrix(x), 1.0F, matrix(dweight));
}

void CudaKernels::embedding_forward(std::span<const int32_t> tokens, const Tensor& table,
                                    const Tensor& y) const {
  cuda::embedding_forward(context_, tokens.data(), matrix(table), matrix(y));
}

void CudaKernels::embedding_backward(std::span<const int32_t> tokens, const Tensor& dy,
                                     const Tensor& dtable) const {
  cuda::embedding_backward(context_, tokens.data(), matrix(dy), matrix(dtable));
}

void CudaKernels::rmsnorm_forward(const Tensor& x, const Tensor& weight, float epsilon,
                                  const Tensor& y, const Tensor& inverse_rms) const {
  cuda::rmsnorm_forward(context_, matrix(x), weight.data(), epsilon, matrix(y), inverse_rms.data());
}

void CudaKernels::rmsnorm_apply(const Tensor& x, const Tensor& weight, const Tensor& inverse_rms,
                                const Tensor& y) const {
  cuda::rmsnorm_apply(context_, matrix(x), weight.data(), inverse_rms.data(), matrix(y));
}

void CudaKernels::rmsnorm_backward(const Tensor& dy, const Tensor& x, const Tensor& weight,
                                   const Tensor& inverse_rms, const Tensor& dx,
                                   const Tensor& dweight) const {
  cuda::rmsnorm_backward(context_, matrix(dy), matrix(x), weight.data(), inverse_rms.data(),
                         matrix(dx), dweight.data());
}

void CudaKernels::rope(const Tensor& x, const Tensor& table, int64_t length, int64_t first_position,
                       Rotation rotation) const {
  cuda::rope(context_, matrix(x), matrix(table), length, first_position, rotation);
}

void CudaKernels::attention_forward(const AttentionShape& shape, const Tensor& q, const Tensor& k,
                                    const Tensor& v, const Tensor& y,
                                    const Tensor& logsumexp) const {
  cuda::attention_forward(context_, shape, matrix(q), matrix(k), matrix(v), matrix(y),
                          logsumexp.data());
}

void CudaKernels::attention_backward(const AttentionShape& shape, const Tensor& dy, const Tensor& q,
                                     const Tensor& k, const Tensor& v, const Tensor& y,
                                     const Tensor& logsumexp, const Tensor& dq, const Tensor& dk,
                                     const Tensor& dv) const {
  cuda::attention_backward(context_, shape, matrix(dy), matrix(q), matrix(k), matrix(v), matrix(y),
                           logsumexp.data(), matrix(dq), matrix(dk), matrix(dv));
}

void CudaKernels::swiglu_forward(const Tensor& gate_up, const Tensor& y) const {
  cuda::swiglu_forward(context_, matrix(gate_up), matrix(y));
}

void CudaKernels::swiglu_backward(const Tensor& gate_up, const Tensor& dy) const {
  cuda::swiglu_backward(context_, matrix(gate_up), matrix(dy));
}

void CudaKernels::scale(const Tensor& x, float factor) const {
  cuda::scale(context_, x.data(), x.numel(), factor);
}

void CudaKernels::add(const Tensor& x, const Tensor& y) const {
  cuda::add(context_, matrix(x), matrix(y));
}

void CudaKernels::add_scaled(const Tensor& x, float factor, const Tensor& y) const {
  cuda::add_scaled(context_, x.data(), factor, y.data(), x.numel());
}

std::vector<double> CudaKernels::sums_of_squares(std::span<const Tensor> tensors) const {
  return cuda::sums_of_squares(context_, tensors);
}

}  // namespace lab::cuda
