// The operations of ops.h on the CPU: raw pointers and sizes, checked by the caller. T is the type
// of what lies between the operations of a layer: float or Bfloat16.
#pragma once

#include <cstdint>

#include "common/ops/ops.h"
#include "common/tensor/bfloat16.h"

namespace lab::cpu {

/// A matrix in memory: rows of `columns` elements. `ld` is the distance from one row to the next,
/// in elements.
template <typename T>
struct MatrixOf {
  T* data;
  int64_t rows;
  int64_t columns;
  int64_t ld;

  T* row(int64_t r) const { return data + r * ld; }
};

using Matrix = MatrixOf<float>;

/// Rows [first, last) of a matrix.
template <typename T>
MatrixOf<T> rows_of(const MatrixOf<T>& m, int64_t first, int64_t last) {
  return {m.row(first), last - first, m.columns, m.ld};
}

enum class Transpose { kNo, kYes };

/// c = op(a) op(b), or += if `accumulate`, on all threads; within a parallel loop, on one. Sums are
/// formed in float32. A and C are both float, or A is Bfloat16 and C either of them.
template <typename A, typename C>
void matmul(Transpose transpose_a, Transpose transpose_b, const MatrixOf<A>& a,
            const MatrixOf<A>& b, bool accumulate, const MatrixOf<C>& c);

void embedding_forward(const int32_t* tokens, const Matrix& table, const Matrix& y);
void embedding_backward(const int32_t* tokens, const Matrix& dy, const Matrix& dtable);

template <typename T>
void rmsnorm_forward(const Matrix& x, const float* weight, float epsilon, const MatrixOf<T>& y,
                     float* inverse_rms);
template <typename T>
void rmsnorm_apply(const Matrix& x, const float* weight, const float* inverse_rms,
                   const MatrixOf<T>& y);
template <typename T>
void rmsnorm_backward(const MatrixOf<T>& dy, const Matrix& x, const float* weight,
                      const float* inverse_rms, const Matrix& dx, float* dweight);

template <typename T>
void rope(const MatrixOf<T>& x, const Matrix& table, int64_t length, int64_t first_position,
          Rotation rotation);

template <typename T>
void attention_forward(const AttentionShape& shape, const MatrixOf<T>& q, const MatrixOf<T>& k,
                       const MatrixOf<T>& v, const MatrixOf<T>& y, float* logsumexp);
template <typename T>
void attention_backward(const AttentionShape& shape, const MatrixOf<T>& dy, const MatrixOf<T>& q,
                        const MatrixOf<T>& k, const MatrixOf<T>& v, const MatrixOf<T>& y,
                        const float* logsumexp, const MatrixOf<T>& dq, const MatrixOf<T>& dk,
                        const MatrixOf<T>& dv);

template <typename T>
void swiglu_forward(const MatrixOf<T>& gate_up, const MatrixOf<T>& y);
template <typename T>
void swiglu_backward(const MatrixOf<T>& gate_up, const MatrixOf<T>& dy);

void scale(float* x, int64_t count, float factor);
void add(const Matrix& x, const Matrix& y);
void add_scaled(const float* x, float factor, float* y, int64_t count);
double sum_of_squares(const float* x, int64_t count);

}  // namespace lab::cpu
