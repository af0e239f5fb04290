// Causal attention, a block of query rows at a time. Each thread has the scores of one block only
// (kQueryBlock rows, up to Tk columns), which stay in the cache. Positions after a block's last
// query are never computed, which saves nearly half of the products.
#include <algorithm>
#include <cmath>
#include <vector>

#include "common/ops/cpu/kernels.h"
#include "common/tensor/parallel.h"
#include "common/tensor/vector_math.h"

namespace lab::cpu {
namespace {

constexpr int64_t kQueryBlock = 64;

/// The rows of sequence b and the columns of head h, `length` x D.
Matrix head_of(const Matrix& m, int64_t b, int64_t h, int64_t length, int64_t head_dim) {
  return {m.row(b * length) + h * head_dim, length, head_dim, m.ld};
}

/// Row of scores -> row of probabilities over its first `visible` entries, the rest zero. Returns
/// the logarithm of the sum of exponentials.
float softmax(float* row, int64_t visible, int64_t columns) {
  float largest = row[0];  // not std::max below: its references would keep the loop scalar
#pragma omp simd reduction(max : largest)
  for (int64_t j = 0; j < visible; ++j) largest = row[j] > largest ? row[j] : largest;
  float sum = 0.0F;
#pragma omp simd reduction(+ : sum)
  for (int64_t j = 0; j < visible; ++j) {
    row[j] = fast_exp(row[j] - largest);
    sum += row[j];
  }
  const float inverse = 1.0F / sum;
#pragma omp simd
  for (int64_t j = 0; j < visible; ++j) row[j] *= inverse;
  std::fill(row + visible, row + columns, 0.0F);
  return largest + std::log(sum);
}

}  // namespace

void attention_forward(const AttentionShape& shape, const Matrix& q, const Matrix& k,
                       const Matrix& v, const Matrix& y, float* logsumexp) {
  const int64_t queries = shape.queries;
  const int64_t keys = shape.keys;
  const int64_t head_dim = shape.head_dim;
  const float score_scale = 1.0F / std::sqrt(static_cast<float>(head_dim));
  const int64_t before = keys - queries;  // positions before the first query

  parallel_for(0, shape.batch * shape.heads, [&](int64_t index) {
    const int64_t b = index / shape.heads;
    const int64_t h = index % shape.heads;
    const int64_t kv = h / (shape.heads / shape.kv_heads);
    const Matrix q_head = head_of(q, b, h, queries, head_dim);
    const Matrix k_head = head_of(k, b, kv, keys, head_dim);
    const Matrix v_head = head_of(v, b, kv, keys, head_dim);
    const Matrix y_head = head_of(y, b, h, queries, head_dim);
    std::vector<float> buffer(static_cast<size_t>(std::min(kQueryBlock, queries) * keys));

    for (int64_t first = 0; first < queries; first += kQueryBlock) {
      const int64_t last = std::min(first + kQueryBlock, queries);
      const int64_t columns = before + last;  // keys that any query of the block may see
      const Matrix scores{buffer.data(), last - first, columns, columns};
      const Matrix seen_keys = rows_of(k_head, 0, columns);
      const Matrix seen_values = rows_of(v_head, 0, columns);
      matmul(Transpose::kNo, Transpose::kYes, score_scale, rows_of(q_head, first, last), seen_keys,
             0.0F, scores);
      for (int64_t i = first; i < last; ++i)
        logsumexp[index * queries + i] = softmax(scores.row(i - first), before + i + 1, columns);
      matmul(Transpose::kNo, Transpose::kNo, 1.0F, scores, seen_values, 0.0F,
             rows_of(y_head, first, last));
    }
  });
}

// With P the probabilities: dV = P^T dY, dP = dY V^T, dS = P * (dP - rowsum(dY * Y)),
// dQ = dS K / sqrt(D), dK = dS^T Q / sqrt(D).
void attention_backward(const AttentionShape& shape, const Matrix& dy, const Matrix& q,
                        const Matrix& k, const Matrix& v, const Matrix& y, const float* logsumexp,
                        const Matrix& dq, const Matrix& dk, const Matrix& dv) {
  const int64_t length = shape.queries;
  const int64_t head_dim = shape.head_dim;
  const int64_t group = shape.heads / shape.kv_heads;
  const float score_scale = 1.0F / std::sqrt(static_cast<float>(head_dim));

  // One task per head of keys and values: the query heads that share it add to dk and dv in order.
  parallel_for(0, shape.batch * shape.kv_heads, [&](int64_t index) {
    const int64_t b = index / shape.kv_heads;
    const int64_t kv = index % shape.kv_heads;
    const Matrix k_head = head_of(k, b, kv, length, head_dim);
    const Matrix v_head = head_of(v, b, kv, length, head_dim);
    const Matrix dk_head = head_of(dk, b, kv, length, head_dim);
    const Matrix dv_head = head_of(dv, b, kv, length, head_dim);
    for (int64_t i = 0; i < length; ++i) {
      std::fill_n(dk_head.row(i), head_dim, 0.0F);
      std::fill_n(dv_head.row(i), head_dim, 0.0F);
    }
    const auto block_size = static_cast<size_t>(std::min(kQueryBlock, length) * length);
    std::vector<float> probability_buffer(block_size);
    std::vector<float> gradient_buffer(block_size);

    for (int64_t h = kv * group; h < (kv + 1) * group; ++h) {
      const Matrix q_head = head_of(q, b, h, length, head_dim);
      const Matrix y_head = head_of(y, b, h, length, head_dim);
      const Matrix dy_head = head_of(dy, b, h, length, head_dim);
      const Matrix dq_head = head_of(dq, b, h, length, head_dim);
      const float* lse = logsumexp + (b * shape.heads + h) * length;

      for (int64_t first = 0; first < length; first += kQueryBlock) {
        const int64_t last = std::min(first + kQueryBlock, length);
        const Matrix probabilities{probability_buffer.data(), last - first, last, last};
        const Matrix gradients{gradient_buffer.data(), last - first, last, last};
        const Matrix q_block = rows_of(q_head, first, last);
        const Matrix dy_block = rows_of(dy_head, first, last);
        const Matrix seen_keys = rows_of(k_head, 0, last);
        const Matrix seen_values = rows_of(v_head, 0, last);

        matmul(Transpose::kNo, Transpose::kYes, score_scale, q_block, seen_keys, 0.0F,
               probabilities);
        matmul(Transpose::kNo, Transpose::kYes, 1.0F, dy_block, seen_values, 0.0F, gradients);
        for (int64_t i = first; i < last; ++i) {
          float* p = probabilities.row(i - first);
          float* dp = gradients.row(i - first);
          float dot = 0.0F;
#pragma omp simd reduction(+ : dot)
          for (int64_t d = 0; d < head_dim; ++d) dot += dy_head.row(i)[d] * y_head.row(i)[d];
#pragma omp simd
          for (int64_t j = 0; j <= i; ++j) {
            p[j] = fast_exp(p[j] - lse[i]);
            dp[j] = p[j] * (dp[j] - dot);
          }
          std::fill(p + i + 1, p + last, 0.0F);
          std::fill(dp + i + 1, dp + last, 0.0F);
        }
        matmul(Transpose::kNo, Transpose::kNo, score_scale, gradients, seen_keys, 0.0F,
               rows_of(dq_head, first, last));
        matmul(Transpose::kYes, Transpose::kNo, score_scale, gradients, q_block, 1.0F,
               rows_of(dk_head, 0, last));
        matmul(Transpose::kYes, Transpose::kNo, 1.0F, probabilities, dy_block, 1.0F,
               rows_of(dv_head, 0, last));
      }
    }
  });
}

}  // namespace lab::cpu
