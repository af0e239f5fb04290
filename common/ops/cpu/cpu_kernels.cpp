// Kernels on the CPU: turns tensors into pointers and sizes.
#include <initializer_list>

#include "common/error.h"
#include "common/ops/cpu/kernels.h"
#include "common/ops/kernels.h"

namespace lab {
namespace {

using cpu::Transpose;

cpu::Matrix matrix(const Tensor& t) {
  return {t.data(), t.row_count(), t.size(-1), t.row_stride()};
}

cpu::MatrixOf<Bfloat16> rounded_matrix(const Tensor& t) {
  return {static_cast<Bfloat16*>(t.address()), t.row_count(), t.size(-1), t.row_stride()};
}

bool is_rounded(const Tensor& t) { return t.type() == ElementType::kBfloat16; }

/// Calls `body` with a function that turns tensors of the type of `t` into matrices.
template <typename Body>
void as_type_of(const Tensor& t, const Body& body) {
  if (is_rounded(t))
    body(rounded_matrix);
  else
    body(matrix);
}

/// Throws Error unless all are float32 or all are bfloat16.
void check_alike(const char* what, std::initializer_list<const Tensor*> tensors) {
  for (const Tensor* tensor : tensors)
    require(tensor->type() == (*tensors.begin())->type(),
            "{} on the CPU: some tensors are float32 and some bfloat16", what);
}

void product(Transpose transpose_a, Transpose transpose_b, const Tensor& a, const Tensor& b,
             bool accumulate, const Tensor& c) {
  check_alike("the factors of a linear layer", {&a, &b});
  if (!is_rounded(a))
    cpu::matmul(transpose_a, transpose_b, matrix(a), matrix(b), accumulate, matrix(c));
  else
    as_type_of(c, [&](auto result) {
      cpu::matmul(transpose_a, transpose_b, rounded_matrix(a), rounded_matrix(b), accumulate,
                  result(c));
    });
}

class CpuKernels final : public Kernels {
 public:
  void linear_forward(const Tensor& x, const Tensor& weight, const Tensor& y,
                      bool accumulate) const override {
    product(Transpose::kNo, Transpose::kYes, x, weight, accumulate, y);
  }
  void linear_backward_input(const Tensor& dy, const Tensor& weight, const Tensor& dx,
                             bool accumulate) const override {
    product(Transpose::kNo, Transpose::kNo, dy, weight, accumulate, dx);
  }
  void linear_backward_weight(const Tensor& dy, const Tensor& x,
                              const Tensor& dweight) const override {
    product(Transpose::kYes, Transpose::kNo, dy, x, /*accumulate=*/true, dweight);
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
    as_type_of(y, [&](auto of_type) {
      cpu::rmsnorm_forward(matrix(x), weight.data(), epsilon, of_type(y), inverse_rms.data());
    });
  }
  void rmsnorm_apply(const Tensor& x, const Tensor& weight, const Tensor& inverse_rms,
                     const Tensor& y) const override {
    as_type_of(y, [&](auto of_type) {
      cpu::rmsnorm_apply(matrix(x), weight.data(), inverse_rms.data(), of_type(y));
    });
  }
  void rmsnorm_backward(const Tensor& dy, const Tensor& x, const Tensor& weight,
                        const Tensor& inverse_rms, const Tensor& dx,
                        const Tensor& dweight) const override {
    as_type_of(dy, [&](auto of_type) {
      cpu::rmsnorm_backward(of_type(dy), matrix(x), weight.data(), inverse_rms.data(), matrix(dx),
                            dweight.data());
    });
  }

  void rope(const Tensor& x, const Tensor& table, int64_t length, int64_t first_position,
            Rotation rotation) const override {
    as_type_of(x, [&](auto of_type) {
      cpu::rope(of_type(x), matrix(table), length, first_position, rotation);
    });
  }

  void attention_forward(const AttentionShape& shape, const Tensor& q, const Tensor& k,
                         const Tensor& v, const Tensor& y, const Tensor& logsumexp) const override {
    check_alike("attention", {&q, &k, &v, &y});
    as_type_of(y, [&](auto of_type) {
      cpu::attention_forward(shape, of_type(q), of_type(k), of_type(v), of_type(y),
                             logsumexp.data());
    });
  }
  void attention_backward(const AttentionShape& shape, const Tensor& dy, const Tensor& q,
                          const Tensor& k, const Tensor& v, const Tensor& y,
                          const Tensor& logsumexp, const Tensor& dq, const Tensor& dk,
                          const Tensor& dv) const override {
    check_alike("attention", {&dy, &q, &k, &v, &y, &dq, &dk, &dv});
    as_type_of(y, [&](auto of_type) {
      cpu::attention_backward(shape, of_type(dy), of_type(q), of_type(k), of_type(v), of_type(y),
                              logsumexp.data(), of_type(dq), of_type(dk), of_type(dv));
    });
  }

  void swiglu_forward(const Tensor& gate_up, const Tensor& y) const override {
    check_alike("swiglu", {&gate_up, &y});
    as_type_of(y, [&](auto of_type) { cpu::swiglu_forward(of_type(gate_up), of_type(y)); });
  }
  void swiglu_backward(const Tensor& gate_up, const Tensor& dy) const override {
    check_alike("swiglu", {&gate_up, &dy});
    as_type_of(dy, [&](auto of_type) { cpu::swiglu_backward(of_type(gate_up), of_type(dy)); });
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
