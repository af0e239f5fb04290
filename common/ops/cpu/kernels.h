// The operations of ops.h on the CPU: raw pointers and sizes, checked by the caller. `ld` is the
// distance from one row to the next, in elements.
#pragma once

#include <cstdint>

#include "common/ops/ops.h"

namespace lab::cpu {

/// A matrix in memory: rows of `columns` elements, `ld` apart.
struct Matrix {
  float* data;
  int64_t rows;
  int64_t columns;
  int64_t ld;

  float* row(int64_t r) const { return data + r * ld; }
};

/// Rows [first, last) of a matrix.
inline Matrix rows_of(const Matrix& m, int64_t first, int64_t last) {
  return {m.row(first), last - first, m.columns, m.ld};
}

enum class Transpose { kNo, kYes };

/// c = alpha op(a) op(b) + beta c, on all threads; within a parallel loop, on one.
void matmul(Transpose transpose_a, Transpose transpose_b, float alpha, const Matrix& a,
            const Matrix& b, float beta, const Matrix& c);

void embedding_forward(const int32_t* tokens, const Matrix& table, const Matrix& y);
void embedding_backward(const int32_t* tokens, const Matrix& dy, const Matrix& dtable);

void rmsnorm_forward(const Matrix& x, const float* weight, float epsilon, const Matrix& y,
                     float* inverse_rms);
void rmsnorm_apply(const Matrix& x, const float* weight, const float* inverse_rms, const Matrix& y);
void rmsnorm_backward(const Matrix& dy, const Matrix& x, const float* weight,
                      const float* inverse_rms, const Matrix& dx, float* dweight);

void rope(const Matrix& x, const Matrix& table, int64_t length, int64_t first_position,
          Rotation rotation);

void attention_forward(const AttentionShape& shape, const Matrix& q, const Matrix& k,
                       const Matrix& v, const Matrix& y, float* logsumexp);
void attention_backward(const AttentionShape& shape, const Matrix& dy, const Matrix& q,
                        const Matrix& k, const Matrix& v, const Matrix& y, const float* logsumexp,
                        const Matrix& dq, const Matrix& dk, const Matrix& dv);

void swiglu_forward(const Matrix& gate_up, const Matrix& y);
void swiglu_backward(const Matrix& gate_up, const Matrix& dy);

void scale(float* x, int64_t count, float factor);
void add(const Matrix& x, const Matrix& y);
void add_scaled(const float* x, float factor, float* y, int64_t count);
double sum_of_squares(const float* x, int64_t count);

}  // namespace lab::cpu
