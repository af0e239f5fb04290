// Checks shapes and hands over to the device's kernels.
#include "common/ops/ops.h"

#include <cmath>

#include "common/ops/cpu/kernels.h"
#include "common/tensor/error.h"

namespace lab {
namespace {

cpu::Matrix matrix(const Tensor& t) {
  return {t.data(), t.row_count(), t.size(-1), t.row_stride()};
}

/// `t` must be a matrix (all dimensions but the last taken together) of that size.
cpu::Matrix matrix(const char* what, const Tensor& t, int64_t rows, int64_t columns) {
  require(t.defined() && t.row_count() == rows && t.size(-1) == columns,
          "{}: expected {} rows of {} elements, got a tensor of shape {}", what, rows, columns,
          to_string(t.shape()));
  return matrix(t);
}

float* vector(const char* what, const Tensor& t, int64_t count) {
  require(t.defined() && t.numel() == count && t.is_contiguous(),
          "{}: expected {} elements, got a tensor of shape {}", what, count, to_string(t.shape()));
  return t.data();
}

}  // namespace

void linear_forward(const Tensor& x, const Tensor& weight, const Tensor& y, bool accumulate) {
  const int64_t rows = x.row_count();
  const auto w = matrix("linear_forward weight", weight, weight.size(0), x.size(-1));
  const auto out = matrix("linear_forward y", y, rows, w.rows);
  cpu::matmul(cpu::Transpose::kNo, cpu::Transpose::kYes, 1.0F, matrix(x), w,
              accumulate ? 1.0F : 0.0F, out);
}

void linear_backward_input(const Tensor& dy, const Tensor& weight, const Tensor& dx,
                           bool accumulate) {
  const auto w = matrix("linear_backward_input weight", weight, dy.size(-1), weight.size(-1));
  const auto out = matrix("linear_backward_input dx", dx, dy.row_count(), w.columns);
  cpu::matmul(cpu::Transpose::kNo, cpu::Transpose::kNo, 1.0F, matrix(dy), w,
              accumulate ? 1.0F : 0.0F, out);
}

void linear_backward_weight(const Tensor& dy, const Tensor& x, const Tensor& dweight) {
  const auto in = matrix("linear_backward_weight x", x, dy.row_count(), x.size(-1));
  const auto out = matrix("linear_backward_weight dweight", dweight, dy.size(-1), in.columns);
  cpu::matmul(cpu::Transpose::kYes, cpu::Transpose::kNo, 1.0F, matrix(dy), in, 1.0F, out);
}

void embedding_forward(std::span<const int32_t> tokens, const Tensor& table, const Tensor& y) {
  const auto rows = matrix(table);
  const auto out =
      matrix("embedding_forward y", y, static_cast<int64_t>(tokens.size()), rows.columns);
  for (int32_t token : tokens)
    require(token >= -1 && token < rows.rows,
            "token {} is not in the vocabulary of {}: does the tokenizer belong to the model?",
            token, rows.rows);
  cpu::embedding_forward(tokens.data(), rows, out);
}

void embedding_backward(std::span<const int32_t> tokens, const Tensor& dy, const Tensor& dtable) {
  const auto in =
      matrix("embedding_backward dy", dy, static_cast<int64_t>(tokens.size()), dtable.size(-1));
  cpu::embedding_backward(tokens.data(), in, matrix(dtable));
}

void rmsnorm_forward(const Tensor& x, const Tensor& weight, float epsilon, const Tensor& y,
                     const Tensor& inverse_rms) {
  const auto in = matrix(x);
  cpu::rmsnorm_forward(in, vector("rmsnorm weight", weight, in.columns), epsilon,
                       matrix("rmsnorm y", y, in.rows, in.columns),
                       vector("rmsnorm inverse_rms", inverse_rms, in.rows));
}

void rmsnorm_apply(const Tensor& x, const Tensor& weight, const Tensor& inverse_rms,
                   const Tensor& y) {
  const auto in = matrix(x);
  cpu::rmsnorm_apply(in, vector("rmsnorm weight", weight, in.columns),
                     vector("rmsnorm inverse_rms", inverse_rms, in.rows),
                     matrix("rmsnorm y", y, in.rows, in.columns));
}

void rmsnorm_backward(const Tensor& dy, const Tensor& x, const Tensor& weight,
                      const Tensor& inverse_rms, const Tensor& dx, const Tensor& dweight) {
  const auto in = matrix(x);
  cpu::rmsnorm_backward(matrix("rmsnorm dy", dy, in.rows, in.columns), in,
                        vector("rmsnorm weight", weight, in.columns),
                        vector("rmsnorm inverse_rms", inverse_rms, in.rows),
                        matrix("rmsnorm dx", dx, in.rows, in.columns),
                        vector("rmsnorm dweight", dweight, in.columns));
}

Tensor rope_table(int64_t positions, int64_t head_dim, float theta) {
  const int64_t half = head_dim / 2;
  Tensor table = Tensor::empty({positions, head_dim});
  for (int64_t p = 0; p < positions; ++p) {
    float* row = table.data() + p * head_dim;
    for (int64_t i = 0; i < half; ++i) {
      const double exponent = 2.0 * static_cast<double>(i) / static_cast<double>(head_dim);
      const double angle = static_cast<double>(p) / std::pow(static_cast<double>(theta), exponent);
      row[i] = static_cast<float>(std::cos(angle));
      row[half + i] = static_cast<float>(std::sin(angle));
    }
  }
  return table;
}

void rope(const Tensor& x, const Tensor& table, int64_t length, int64_t first_position,
          Rotation rotation) {
  const auto angles = matrix(table);
  require(x.size(-1) % angles.columns == 0 && length > 0 && first_position >= 0 &&
              first_position + length <= angles.rows,
          "rope: positions [{}, {}) of heads of width {} do not fit a tensor of shape {} and a "
          "table of {} positions",
          first_position, first_position + length, angles.columns, to_string(x.shape()),
          angles.rows);
  cpu::rope(matrix(x), angles, length, first_position, rotation);
}

void attention_forward(const AttentionShape& s, const Tensor& q, const Tensor& k, const Tensor& v,
                       const Tensor& y, const Tensor& logsumexp) {
  require(s.kv_heads > 0 && s.heads % s.kv_heads == 0 && s.queries <= s.keys,
          "attention: {} heads over {} heads of keys, {} queries over {} keys", s.heads, s.kv_heads,
          s.queries, s.keys);
  cpu::attention_forward(s, matrix("attention q", q, s.batch * s.queries, s.heads * s.head_dim),
                         matrix("attention k", k, s.batch * s.keys, s.kv_heads * s.head_dim),
                         matrix("attention v", v, s.batch * s.keys, s.kv_heads * s.head_dim),
                         matrix("attention y", y, s.batch * s.queries, s.heads * s.head_dim),
                         vector("attention logsumexp", logsumexp, s.batch * s.heads * s.queries));
}

void attention_backward(const AttentionShape& s, const Tensor& dy, const Tensor& q, const Tensor& k,
                        const Tensor& v, const Tensor& y, const Tensor& logsumexp, const Tensor& dq,
                        const Tensor& dk, const Tensor& dv) {
  require(s.queries == s.keys, "attention_backward: {} queries over {} keys", s.queries, s.keys);
  const int64_t rows = s.batch * s.queries;
  const int64_t q_width = s.heads * s.head_dim;
  const int64_t kv_width = s.kv_heads * s.head_dim;
  cpu::attention_backward(
      s, matrix("attention dy", dy, rows, q_width), matrix("attention q", q, rows, q_width),
      matrix("attention k", k, rows, kv_width), matrix("attention v", v, rows, kv_width),
      matrix("attention y", y, rows, q_width),
      vector("attention logsumexp", logsumexp, rows * s.heads),
      matrix("attention dq", dq, rows, q_width), matrix("attention dk", dk, rows, kv_width),
      matrix("attention dv", dv, rows, kv_width));
}

void swiglu_forward(const Tensor& gate_up, const Tensor& y) {
  const auto in = matrix("swiglu gate_up", gate_up, y.row_count(), 2 * y.size(-1));
  cpu::swiglu_forward(in, matrix(y));
}

void swiglu_backward(const Tensor& gate_up, const Tensor& dy) {
  const auto in = matrix("swiglu gate_up", gate_up, dy.row_count(), 2 * dy.size(-1));
  cpu::swiglu_backward(in, matrix(dy));
}

void scale(const Tensor& x, float factor) {
  cpu::scale(vector("scale x", x, x.numel()), x.numel(), factor);
}

void add(const Tensor& x, const Tensor& y) {
  cpu::add(matrix(x), matrix("add y", y, x.row_count(), x.size(-1)));
}

double sum_of_squares(const Tensor& x) {
  return cpu::sum_of_squares(vector("sum_of_squares x", x, x.numel()), x.numel());
}

}  // namespace lab
