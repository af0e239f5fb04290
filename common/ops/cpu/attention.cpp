// Causal attention, a block of query rows at a time. Each thread has the scores of one block only
// (kQueryBlock rows, up to Tk columns), which stay in the cache. Positions after a block's last
// query are never computed, which saves nearly half of the products.
#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <type_traits>

#include "common/ops/cpu/kernels.h"
#include "common/tensor/parallel.h"
#include "common/tensor/vector_math.h"

namespace lab::cpu {
namespace {

constexpr int64_t kQueryBlock = 64;

/// The rows of sequence b and the columns of head h, `length` x D.
template <typename T>
MatrixOf<T> head_of(const MatrixOf<T>& m, int64_t b, int64_t h, int64_t length, int64_t head_dim) {
  return {m.row(b * length) + h * head_dim, length, head_dim, m.ld};
}

/// Memory for a matrix whose rows are adjacent.
template <typename T>
class Block {
 public:
  Block(int64_t rows, int64_t columns)
      : numbers_(std::make_unique_for_overwrite<T[]>(static_cast<size_t>(rows * columns))) {}
  MatrixOf<T> matrix(int64_t rows, int64_t columns) const {
    return {numbers_.get(), rows, columns, columns};
  }

 private:
  std::unique_ptr<T[]> numbers_;
};

/// How many columns a head's rows have in products. The instructions for bfloat16 take 32 numbers
/// at a time, and a remainder takes longer than padding with zeros.
template <typename T>
int64_t padded(int64_t head_dim) {
  return std::is_same_v<T, float> ? head_dim : (head_dim + 31) / 32 * 32;
}

/// Columns that `from` does not have become zero.
template <typename From, typename To>
void copy_rows(const MatrixOf<From>& from, const MatrixOf<To>& to) {
  const int64_t columns = std::min(from.columns, to.columns);
  for (int64_t i = 0; i < from.rows; ++i) {
    std::copy_n(from.row(i), columns, to.row(i));
    std::fill(to.row(i) + columns, to.row(i) + to.columns, To(0.0F));
  }
}

/// A head as products take it: in bfloat16 a copy whose rows are adjacent and padded, which oneDNN
/// multiplies twice as fast as columns of a wider matrix.
template <typename T>
class PackedHead {
 public:
  explicit PackedHead(const MatrixOf<T>& head)
      : copy_(kCopies ? head.rows : 0, padded<T>(head.columns)),
        rows_(kCopies ? copy_.matrix(head.rows, padded<T>(head.columns)) : head) {
    if (kCopies) copy_rows(head, rows_);
  }
  MatrixOf<T> rows(int64_t first, int64_t last) const { return rows_of(rows_, first, last); }

 private:
  static constexpr bool kCopies = !std::is_same_v<T, float>;
  Block<T> copy_;
  MatrixOf<T> rows_;
};

/// The end of a loop over the `visible` entries of a row, rounded up to whole vectors: a partial
/// one would be computed element by element.
int64_t whole_vectors(int64_t visible, int64_t columns) {
  constexpr int64_t kVector = 16;
  return std::min((visible + kVector - 1) / kVector * kVector, columns);
}

/// Row of products of a query with keys -> row of probabilities over its first `visible` entries,
/// the rest zero. The scores are the products times `scale`. Returns the logarithm of the sum of
/// their exponentials; `row` is overwritten.
template <typename T>
float softmax(float* row, float scale, int64_t visible, int64_t columns, T* probabilities) {
  const int64_t end = whole_vectors(visible, columns);
  std::fill(row + visible, row + end, -std::numeric_limits<float>::infinity());  // probability 0
  float largest = row[0];  // not std::max below: its references would keep the loop scalar
#pragma omp simd reduction(max : largest)
  for (int64_t j = 0; j < end; ++j) largest = row[j] > largest ? row[j] : largest;
  float sum = 0.0F;
#pragma omp simd reduction(+ : sum)
  for (int64_t j = 0; j < end; ++j) {
    row[j] = fast_exp((row[j] - largest) * scale);
    sum += row[j];
  }
  const float inverse = 1.0F / sum;
#pragma omp simd
  for (int64_t j = 0; j < end; ++j) probabilities[j] = row[j] * inverse;
  std::fill(probabilities + end, probabilities + columns, T(0.0F));
  return largest * scale + std::log(sum);
}

}  // namespace

template <typename T>
void attention_forward(const AttentionShape& shape, const MatrixOf<T>& q, const MatrixOf<T>& k,
                       const MatrixOf<T>& v, const MatrixOf<T>& y, float* logsumexp) {
  const int64_t queries = shape.queries;
  const int64_t keys = shape.keys;
  const int64_t head_dim = shape.head_dim;
  const float scale = 1.0F / std::sqrt(static_cast<float>(head_dim));
  const int64_t before = keys - queries;  // positions before the first query
  const int64_t block = std::min(kQueryBlock, queries);

  parallel_for(0, shape.batch * shape.heads, [&](int64_t index) {
    const int64_t b = index / shape.heads;
    const int64_t h = index % shape.heads;
    const int64_t kv = h / (shape.heads / shape.kv_heads);
    const PackedHead q_head(head_of(q, b, h, queries, head_dim));
    const PackedHead k_head(head_of(k, b, kv, keys, head_dim));
    const PackedHead v_head(head_of(v, b, kv, keys, head_dim));
    const auto y_head = head_of(y, b, h, queries, head_dim);
    const Block<float> score_block(block, keys);
    const Block<T> probability_block(block, keys);
    const Block<T> y_block(block, padded<T>(head_dim));

    for (int64_t first = 0; first < queries; first += block) {
      const int64_t last = std::min(first + block, queries);
      const int64_t columns = before + last;  // keys that any query of the block may see
      const Matrix scores = score_block.matrix(last - first, columns);
      const MatrixOf<T> probabilities = probability_block.matrix(last - first, columns);
      const MatrixOf<T> sums = y_block.matrix(last - first, padded<T>(head_dim));
      matmul(Transpose::kNo, Transpose::kYes, q_head.rows(first, last), k_head.rows(0, columns),
             false, scores);
      for (int64_t i = first; i < last; ++i)
        logsumexp[index * queries + i] = softmax(scores.row(i - first), scale, before + i + 1,
                                                 columns, probabilities.row(i - first));
      matmul(Transpose::kNo, Transpose::kNo, probabilities, v_head.rows(0, columns), false, sums);
      copy_rows(sums, rows_of(y_head, first, last));
    }
  });
}

// With P the probabilities: dV = P^T dY, dP = dY V^T, dS = P * (dP - rowsum(dY * Y)) / sqrt(D),
// dQ = dS K, dK = dS^T Q.
template <typename T>
void attention_backward(const AttentionShape& shape, const MatrixOf<T>& dy, const MatrixOf<T>& q,
                        const MatrixOf<T>& k, const MatrixOf<T>& v, const MatrixOf<T>& y,
                        const float* logsumexp, const MatrixOf<T>& dq, const MatrixOf<T>& dk,
                        const MatrixOf<T>& dv) {
  const int64_t length = shape.queries;
  const int64_t head_dim = shape.head_dim;
  const int64_t group = shape.heads / shape.kv_heads;
  const float scale = 1.0F / std::sqrt(static_cast<float>(head_dim));
  const int64_t block = std::min(kQueryBlock, length);
  const int64_t columns = padded<T>(head_dim);

  // One task per head of keys and values: the query heads that share it add to dk and dv in order.
  parallel_for(0, shape.batch * shape.kv_heads, [&](int64_t index) {
    const int64_t b = index / shape.kv_heads;
    const int64_t kv = index % shape.kv_heads;
    const PackedHead k_head(head_of(k, b, kv, length, head_dim));
    const PackedHead v_head(head_of(v, b, kv, length, head_dim));
    const Block<float> score_block(block, length);
    const Block<float> gradient_block(block, length);
    const Block<T> probability_block(block, length);
    const Block<T> score_gradient_block(block, length);
    const Block<T> dq_block(block, columns);
    const Block<float> dk_block(length, columns);
    const Block<float> dv_block(length, columns);
    const Matrix dk_sums = dk_block.matrix(length, columns);
    const Matrix dv_sums = dv_block.matrix(length, columns);
    for (const Matrix& sums : {dk_sums, dv_sums}) std::fill_n(sums.data, length * columns, 0.0F);

    for (int64_t h = kv * group; h < (kv + 1) * group; ++h) {
      const PackedHead q_head(head_of(q, b, h, length, head_dim));
      const PackedHead dy_head(head_of(dy, b, h, length, head_dim));
      const auto y_head = head_of(y, b, h, length, head_dim);
      const auto dq_head = head_of(dq, b, h, length, head_dim);
      const float* lse = logsumexp + (b * shape.heads + h) * length;

      for (int64_t first = 0; first < length; first += block) {
        const int64_t last = std::min(first + block, length);
        const Matrix scores = score_block.matrix(last - first, last);
        const Matrix gradients = gradient_block.matrix(last - first, last);
        const MatrixOf<T> probabilities = probability_block.matrix(last - first, last);
        const MatrixOf<T> score_gradients = score_gradient_block.matrix(last - first, last);
        const MatrixOf<T> dq_sums = dq_block.matrix(last - first, columns);
        const MatrixOf<T> q_block = q_head.rows(first, last);
        const MatrixOf<T> dy_block = dy_head.rows(first, last);

        matmul(Transpose::kNo, Transpose::kYes, q_block, k_head.rows(0, last), false, scores);
        matmul(Transpose::kNo, Transpose::kYes, dy_block, v_head.rows(0, last), false, gradients);
        for (int64_t i = first; i < last; ++i) {
          const float* s = scores.row(i - first);
          const float* dp = gradients.row(i - first);
          T* p = probabilities.row(i - first);
          T* ds = score_gradients.row(i - first);
          const T* dy_row = dy_block.row(i - first);
          const T* y_row = y_head.row(i);
          float dot = 0.0F;
#pragma omp simd reduction(+ : dot)
          for (int64_t d = 0; d < head_dim; ++d) dot += dy_row[d] * y_row[d];
          const int64_t end = whole_vectors(i + 1, last);
#pragma omp simd
          for (int64_t j = 0; j < end; ++j) {
            const float probability = fast_exp(s[j] * scale - lse[i]);
            p[j] = probability;
            ds[j] = probability * (dp[j] - dot) * scale;
          }
          std::fill(p + i + 1, p + last, T(0.0F));
          std::fill(ds + i + 1, ds + last, T(0.0F));
        }
        matmul(Transpose::kNo, Transpose::kNo, score_gradients, k_head.rows(0, last), false,
               dq_sums);
        copy_rows(dq_sums, rows_of(dq_head, first, last));
        matmul(Transpose::kYes, Transpose::kNo, score_gradients, q_block, true,
               rows_of(dk_sums, 0, last));
        matmul(Transpose::kYes, Transpose::kNo, probabilities, dy_block, true,
               rows_of(dv_sums, 0, last));
      }
    }
    copy_rows(dk_sums, head_of(dk, b, kv, length, head_dim));
    copy_rows(dv_sums, head_of(dv, b, kv, length, head_dim));
  });
}

template void attention_forward(const AttentionShape&, const Matrix&, const Matrix&, const Matrix&,
                                const Matrix&, float*);
template void attention_forward(const AttentionShape&, const MatrixOf<Bfloat16>&,
                                const MatrixOf<Bfloat16>&, const MatrixOf<Bfloat16>&,
                                const MatrixOf<Bfloat16>&, float*);
template void attention_backward(const AttentionShape&, const Matrix&, const Matrix&, const Matrix&,
                                 const Matrix&, const Matrix&, const float*, const Matrix&,
                                 const Matrix&, const Matrix&);
template void attention_backward(const AttentionShape&, const MatrixOf<Bfloat16>&,
                                 const MatrixOf<Bfloat16>&, const MatrixOf<Bfloat16>&,
                                 const MatrixOf<Bfloat16>&, const MatrixOf<Bfloat16>&, const float*,
                                 const MatrixOf<Bfloat16>&, const MatrixOf<Bfloat16>&,
                                 const MatrixOf<Bfloat16>&);

}  // namespace lab::cpu
