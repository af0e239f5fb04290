// Kernels on the CPU: turns tensors into pointers and sizes.
#include "common/ops/cpu/kernels.h"
#include "common/ops/kernels.h"

namespace lab {
namespace {

cpu::Matrix matrix(const Tensor& t) {
  return {t.data(), t.row_count(), t.size(-1), t.row_stride()};
}

using cpu::Transpose;

class CpuKernels final : public Kernels {
 public:
  void linear_forward(const Tensor& x, const Tensor& weight, const Tensor& y,
                      bool accumulate) const override {
    cpu::matmul(Transpose::kNo, Transpose::kYes, 1.0F, matrix(x), matrix(weight),
                accumulate ? 1.0F : 0.0F, matrix(y));
  }
  void linear_backward_input(const Tensor& dy, const Tensor& weight, const Tensor& dx,
                             bool accumulate) const override {
    cpu::matmul(Transpose::kNo, Transpose::kNo, 1.0F, matrix(dy), matrix(weight),
                accumulate ? 1.0F : 0.0F, matrix(dx));
  }
  void linear_backward_weight(const Tensor& dy, const Tensor& x,
                              const Tensor& dweight) const override {
    cpu::matmul(Transpose::kYes, Transpose::kNo, 1.0F, matrix(dy), matrix(x), 1.0F,
                matrix(dweight));
  }

  void embedding_forward(std::span<const int32_t> tokens, const Tensor& table,
                         const Tensor& y) const override {
    cpu::embedding_forward(tokens.data(), matrix(table), matrix(y));
  }
  void embedding_backward(std::span<const int32_t> tokens, const Tensor& dy,
                          const Tensor& dtable) const override {
    cpu::embedding_backward(tokens.data(), matrix(dy), matrix(dtable));
  }

  void rmsnorm_forward(const Tensor& x, const Tensor& weight, float epsilon, const Tensor& y,
                       const Tensor& inverse_rms) const override {
    cpu::rmsnorm_forward(matrix(x), weight.data(), epsilon, matrix(y), inverse_rms.data());
  }
  void rmsnorm_apply(const Tensor& x, const Tensor& weight, const Tensor& inverse_rms,
                     const Tensor& y) const override {
    cpu::rmsnorm_apply(matrix(x), weight.data(), inverse_rms.data(), matrix(y));
  }
  void rmsnorm_backward(const Tensor& dy, const Tensor& x, const Tensor& weight,
                        const Tensor& inverse_rms, const Tensor& dx,
                        const Tensor& dweight) const override {
    cpu::rmsnorm_backward(matrix(dy), matrix(x), weight.data(), inverse_rms.data(), matrix(dx),
                          dweight.data());
  }

  void rope(const Tensor& x, const Tensor& table, int64_t length, int64_t first_position,
            Rotation rotation) const override {
    cpu::rope(matrix(x), matrix(table), length, first_position, rotation);
  }

  void attention_forward(const AttentionShape& shape, const Tensor& q, const Tensor& k,
                         const Tensor& v, const Tensor& y, const Tensor& logsumexp) const override {
    cpu::attention_forward(shape, matrix(q), matrix(k), matrix(v), matrix(y), logsumexp.data());
  }
  void attention_backward(const AttentionShape& shape, const Tensor& dy, const Tensor& q,
                          const Tensor& k, const Tensor& v, const Tensor& y,
                          const Tensor& logsumexp, const Tensor& dq, const Tensor& dk,
                          const Tensor& dv) const override {
    cpu::attention_backward(shape, matrix(dy), matrix(q), matrix(k), matrix(v), matrix(y),
                            logsumexp.data(), matrix(dq), matrix(dk), matrix(dv));
  }

  void swiglu_forward(const Tensor& gate_up, const Tensor& y) const override {
    cpu::swiglu_forward(matrix(gate_up), matrix(y));
  }
  void swiglu_backward(const Tensor& gate_up, const Tensor& dy) const override {
    cpu::swiglu_backward(matrix(gate_up), matrix(dy));
  }

  void scale(const Tensor& x, float factor) const override {
    cpu::scale(x.data(), x.numel(), factor);
  }
  void add(const Tensor& x, const Tensor& y) const override { cpu::add(matrix(x), matrix(y)); }
  void add_scaled(const Tensor& x, float factor, const Tensor& y) const override {
    cpu::add_scaled(x.data(), factor, y.data(), x.numel());
  }
  std::vector<double> sums_of_squares(std::span<const Tensor> tensors) const override {
    std::vector<double> sums;
    for (const Tensor& x : tensors) sums.push_back(cpu::sum_of_squares(x.data(), x.numel()));
    return sums;
  }
};

}  // namespace

const Kernels& cpu_kernels() {
  static const CpuKernels kernels;
  return kernels;
}

}  // namespace lab
