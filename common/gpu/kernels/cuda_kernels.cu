// Kernels on the GPU: passes each operation to the file with its CUDA kernel.
#include "common/gpu/kernels/attention.h"
#include "common/gpu/kernels/cuda_kernels.h"
#include "common/gpu/kernels/elementwise.h"
#include "common/gpu/kernels/matmul.h"
#include "common/gpu/kernels/model_ops.h"

namespace lab::cuda {
namespace {

class CudaKernels final : public Kernels {
 public:
  explicit CudaKernels(const Context& context) : context_(context) {}

  void linear_forward(const Tensor& x, const Tensor& weight, const Tensor& y,
                      bool accumulate) const override {
    matmul(context_, Transpose::kNo, Transpose::kYes, x, weight, accumulate ? 1.0F : 0.0F, y);
  }

  void linear_backward_input(const Tensor& dy, const Tensor& weight, const Tensor& dx,
                             bool accumulate) const override {
    matmul(context_, Transpose::kNo, Transpose::kNo, dy, weight, accumulate ? 1.0F : 0.0F, dx);
  }

  void linear_backward_weight(const Tensor& dy, const Tensor& x,
                              const Tensor& dweight) const override {
    matmul(context_, Transpose::kYes, Transpose::kNo, dy, x, 1.0F, dweight);
  }

  void embedding_forward(std::span<const int32_t> tokens, const Tensor& table,
                         const Tensor& y) const override {
    cuda::embedding_forward(context_, tokens.data(), matrix(table), matrix(y));
  }

  void embedding_backward(std::span<const int32_t> tokens, const Tensor& dy,
                          const Tensor& dtable) const override {
    cuda::embedding_backward(context_, tokens.data(), matrix(dy), matrix(dtable));
  }

  void rmsnorm_forward(const Tensor& x, const Tensor& weight, float epsilon, const Tensor& y,
                       const Tensor& inverse_rms) const override {
    with_type_of(y, [&]<typename T>() {
      cuda::rmsnorm_forward(context_, matrix(x), weight.data(), epsilon, matrix<T>(y),
                            inverse_rms.data());
    });
  }

  void rmsnorm_apply(const Tensor& x, const Tensor& weight, const Tensor& inverse_rms,
                     const Tensor& y) const override {
    with_type_of(y, [&]<typename T>() {
      cuda::rmsnorm_apply(context_, matrix(x), weight.data(), inverse_rms.data(), matrix<T>(y));
    });
  }

  void rmsnorm_backward(const Tensor& dy, const Tensor& x, const Tensor& weight,
                        const Tensor& inverse_rms, const Tensor& dx,
                        const Tensor& dweight) const override {
    with_type_of(dy, [&]<typename T>() {
      cuda::rmsnorm_backward(context_, matrix<T>(dy), matrix(x), weight.data(), inverse_rms.data(),
                             matrix(dx), dweight.data());
    });
  }

  void rope(const Tensor& x, const Tensor& table, int64_t length, int64_t first_position,
            Rotation rotation) const override {
    with_type_of(x, [&]<typename T>() {
      cuda::rope(context_, matrix<T>(x), matrix(table), length, first_position, rotation);
    });
  }

  void attention_forward(const AttentionShape& shape, const Tensor& q, const Tensor& k,
                         const Tensor& v, const Tensor& y, const Tensor& logsumexp) const override {
    with_type_of(q, [&]<typename T>() {
      cuda::attention_forward(context_, shape, matrix<T>(q), matrix<T>(k), matrix<T>(v),
                              matrix<T>(y), logsumexp.data());
    });
  }

  void attention_backward(const AttentionShape& shape, const Tensor& dy, const Tensor& q,
                          const Tensor& k, const Tensor& v, const Tensor& y,
                          const Tensor& logsumexp, const Tensor& dq, const Tensor& dk,
                          const Tensor& dv) const override {
    with_type_of(q, [&]<typename T>() {
      cuda::attention_backward(context_, shape, matrix<T>(dy), matrix<T>(q), matrix<T>(k),
                               matrix<T>(v), matrix<T>(y), logsumexp.data(), matrix<T>(dq),
                               matrix<T>(dk), matrix<T>(dv));
    });
  }

  void swiglu_forward(const Tensor& gate_up, const Tensor& y) const override {
    with_type_of(
        y, [&]<typename T>() { cuda::swiglu_forward(context_, matrix<T>(gate_up), matrix<T>(y)); });
  }

  void swiglu_backward(const Tensor& gate_up, const Tensor& dy) const override {
    with_type_of(dy, [&]<typename T>() {
      cuda::swiglu_backward(context_, matrix<T>(gate_up), matrix<T>(dy));
    });
  }

  void scale(const Tensor& x, float factor) const override {
    cuda::scale(context_, x.data(), x.numel(), factor);
  }

  void add(const Tensor& x, const Tensor& y) const override {
    cuda::add(context_, matrix(x), matrix(y));
  }

  void add_scaled(const Tensor& x, float factor, const Tensor& y) const override {
    cuda::add_scaled(context_, x.data(), factor, y.data(), x.numel());
  }

  std::vector<double> sums_of_squares(std::span<const Tensor> tensors) const override {
    return cuda::sums_of_squares(context_, tensors);
  }

 private:
  const Context& context_;
};

}  // namespace

std::unique_ptr<Kernels> make_kernels(const Context& context) {
  return std::make_unique<CudaKernels>(context);
}

}  // namespace lab::cuda
