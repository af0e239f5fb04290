// Checks shapes, then calls the device's kernels.
#include "common/ops/ops.h"

#include <fmt/ranges.h>  // shapes in messages, made only if they are needed

#include <cmath>
#include <initializer_list>

#include "common/error.h"
#include "common/ops/kernels.h"
#include "common/tensor/accelerator.h"

namespace lab {
namespace {

/// The kernels of the device on which all these tensors lie.
const Kernels& kernels_for(const char* what, std::initializer_list<const Tensor*> tensors) {
  const Device device = (*tensors.begin())->device();
  for (const Tensor* tensor : tensors)
    require(tensor->device() == device,
            "{}: one tensor lies in the CPU's memory, another in the GPU's: move it with to()",
            what);
  return device == Device::kCpu ? cpu_kernels() : accelerator().kernels();
}

/// On a GPU, the kernels check.
void check_tokens(const char* function, std::span<const int32_t> tokens, const Tensor& table) {
  if (table.device() != Device::kCpu) return;
  for (const int32_t token : tokens)
    require(token >= -1 && token < table.row_count(),
            "{}: token {}, but the table has {} rows, counted from 0", function, token,
            table.row_count());
}

/// `t` must be a matrix (all dimensions but the last taken together) of that size.
void check_matrix(const char* what, const Tensor& t, int64_t rows, int64_t columns) {
  require(t.defined() && t.row_count() == rows && t.size(-1) == columns,
          "{}: expected {} rows of {} elements, got a tensor of shape {}", what, rows, columns,
          t.shape());
}

void check_vector(const char* what, const Tensor& t, int64_t count) {
  require(t.defined() && t.numel() == count && t.is_contiguous(),
          "{}: expected {} elements, got a tensor of shape {}", what, count, t.shape());
}

}  // namespace

void linear_forward(const Tensor& x, const Tensor& weight, const Tensor& y, bool accumulate) {
  check_matrix("linear_forward weight", weight, weight.size(0), x.size(-1));
  check_matrix("linear_forward y", y, x.row_count(), weight.size(0));
  kernels_for("linear_forward", {&x, &weight, &y}).linear_forward(x, weight, y, accumulate);
}

void linear_backward_input(const Tensor& dy, const Tensor& weight, const Tensor& dx,
                           bool accumulate) {
  check_matrix("linear_backward_input weight", weight, dy.size(-1), weight.size(-1));
  check_matrix("linear_backward_input dx", dx, dy.row_count(), weight.size(-1));
  kernels_for("linear_backward_input", {&dy, &weight, &dx})
      .linear_backward_input(dy, weight, dx, accumulate);
}

void linear_backward_weight(const Tensor& dy, const Tensor& x, const Tensor& dweight) {
  check_matrix("linear_backward_weight x", x, dy.row_count(), x.size(-1));
  check_matrix("linear_backward_weight dweight", dweight, dy.size(-1), x.size(-1));
  kernels_for("linear_backward_weight", {&dy, &x, &dweight}).linear_backward_weight(dy, x, dweight);
}

void embedding_forward(std::span<const int32_t> tokens, const Tensor& table, const Tensor& y) {
  check_matrix("embedding_forward y", y, static_cast<int64_t>(tokens.size()), table.size(-1));
  check_tokens("embedding_forward", tokens, table);
  kernels_for("embedding_forward", {&table, &y}).embedding_forward(tokens, table, y);
}

void embedding_backward(std::span<const int32_t> tokens, const Tensor& dy, const Tensor& dtable) {
  check_matrix("embedding_backward dy", dy, static_cast<int64_t>(tokens.size()), dtable.size(-1));
  check_tokens("embedding_backward", tokens, dtable);
  kernels_for("embedding_backward", {&dy, &dtable}).embedding_backward(tokens, dy, dtable);
}

void rmsnorm_forward(const Tensor& x, const Tensor& weight, float epsilon, const Tensor& y,
                     const Tensor& inverse_rms) {
  check_vector("rmsnorm weight", weight, x.size(-1));
  check_matrix("rmsnorm y", y, x.row_count(), x.size(-1));
  check_vector("rmsnorm inverse_rms", inverse_rms, x.row_count());
  kernels_for("rmsnorm_forward", {&x, &weight, &y, &inverse_rms})
      .rmsnorm_forward(x, weight, epsilon, y, inverse_rms);
}

void rmsnorm_apply(const Tensor& x, const Tensor& weight, const Tensor& inverse_rms,
                   const Tensor& y) {
  check_vector("rmsnorm weight", weight, x.size(-1));
  check_vector("rmsnorm inverse_rms", inverse_rms, x.row_count());
  check_matrix("rmsnorm y", y, x.row_count(), x.size(-1));
  kernels_for("rmsnorm_apply", {&x, &weight, &inverse_rms, &y})
      .rmsnorm_apply(x, weight, inverse_rms, y);
}

void rmsnorm_backward(const Tensor& dy, const Tensor& x, const Tensor& weight,
                      const Tensor& inverse_rms, const Tensor& dx, const Tensor& dweight) {
  check_matrix("rmsnorm dy", dy, x.row_count(), x.size(-1));
  check_vector("rmsnorm weight", weight, x.size(-1));
  check_vector("rmsnorm inverse_rms", inverse_rms, x.row_count());
  check_matrix("rmsnorm dx", dx, x.row_count(), x.size(-1));
  check_vector("rmsnorm dweight", dweight, x.size(-1));
  kernels_for("rmsnorm_backward", {&dy, &x, &weight, &inverse_rms, &dx, &dweight})
      .rmsnorm_backward(dy, x, weight, inverse_rms, dx, dweight);
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
  const int64_t positions = table.row_count();
  const int64_t width = table.size(-1);
  require(x.size(-1) % width == 0 && length > 0 && first_position >= 0 &&
              first_position + length <= positions,
          "rope: positions [{}, {}) of heads of width {} do not fit a tensor of shape {} and a "
          "table of {} positions",
          first_position, first_position + length, width, x.shape(), positions);
  kernels_for("rope", {&x, &table}).rope(x, table, length, first_position, rotation);
}

void attention_forward(const AttentionShape& s, const Tensor& q, const Tensor& k, const Tensor& v,
                       const Tensor& y, const Tensor& logsumexp) {
  require(s.kv_heads > 0 && s.heads % s.kv_heads == 0 && s.queries <= s.keys,
          "attention: {} heads over {} heads of keys, {} queries over {} keys", s.heads, s.kv_heads,
          s.queries, s.keys);
  check_matrix("attention q", q, s.batch * s.queries, s.heads * s.head_dim);
  check_matrix("attention k", k, s.batch * s.keys, s.kv_heads * s.head_dim);
  check_matrix("attention v", v, s.batch * s.keys, s.kv_heads * s.head_dim);
  check_matrix("attention y", y, s.batch * s.queries, s.heads * s.head_dim);
  check_vector("attention logsumexp", logsumexp, s.batch * s.heads * s.queries);
  kernels_for("attention_forward", {&q, &k, &v, &y, &logsumexp})
      .attention_forward(s, q, k, v, y, logsumexp);
}

void attention_backward(const AttentionShape& s, const Tensor& dy, const Tensor& q, const Tensor& k,
                        const Tensor& v, const Tensor& y, const Tensor& logsumexp, const Tensor& dq,
                        const Tensor& dk, const Tensor& dv) {
  require(s.queries == s.keys, "attention_backward: {} queries over {} keys", s.queries, s.keys);
  const int64_t rows = s.batch * s.queries;
  const int64_t q_width = s.heads * s.head_dim;
  const int64_t kv_width = s.kv_heads * s.head_dim;
  check_matrix("attention dy", dy, rows, q_width);
  check_matrix("attention q", q, rows, q_width);
  check_matrix("attention k", k, rows, kv_width);
  check_matrix("attention v", v, rows, kv_width);
  check_matrix("attention y", y, rows, q_width);
  check_vector("attention logsumexp", logsumexp, rows * s.heads);
  check_matrix("attention dq", dq, rows, q_width);
  check_matrix("attention dk", dk, rows, kv_width);
  check_matrix("attention dv", dv, rows, kv_width);
  kernels_for("attention_backward", {&dy, &q, &k, &v, &y, &logsumexp, &dq, &dk, &dv})
      .attention_backward(s, dy, q, k, v, y, logsumexp, dq, dk, dv);
}

void swiglu_forward(const Tensor& gate_up, const Tensor& y) {
  check_matrix("swiglu gate_up", gate_up, y.row_count(), 2 * y.size(-1));
  kernels_for("swiglu_forward", {&gate_up, &y}).swiglu_forward(gate_up, y);
}

void swiglu_backward(const Tensor& gate_up, const Tensor& dy) {
  check_matrix("swiglu gate_up", gate_up, dy.row_count(), 2 * dy.size(-1));
  kernels_for("swiglu_backward", {&gate_up, &dy}).swiglu_backward(gate_up, dy);
}

void scale(const Tensor& x, float factor) {
  check_vector("scale x", x, x.numel());
  kernels_for("scale", {&x}).scale(x, factor);
}

void add(const Tensor& x, const Tensor& y) {
  check_matrix("add y", y, x.row_count(), x.size(-1));
  kernels_for("add", {&x, &y}).add(x, y);
}

void add_scaled(const Tensor& x, float factor, const Tensor& y) {
  check_vector("add_scaled x", x, x.numel());
  check_vector("add_scaled y", y, x.numel());
  kernels_for("add_scaled", {&x, &y}).add_scaled(x, factor, y);
}

double sum_of_squares(const Tensor& x) { return sums_of_squares({&x, 1})[0]; }

std::vector<double> sums_of_squares(std::span<const Tensor> tensors) {
  if (tensors.empty()) return {};
  for (const Tensor& x : tensors) {
    check_vector("sum_of_squares x", x, x.numel());
    kernels_for("sums_of_squares", {&tensors[0], &x});
  }
  return kernels_for("sums_of_squares", {&tensors[0]}).sums_of_squares(tensors);
}

}  // namespace lab
