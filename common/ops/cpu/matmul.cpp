// Matrix products by oneDNN.
#include <dnnl.h>

#include <algorithm>

#include "common/error.h"
#include "common/ops/cpu/kernels.h"
#include "common/tensor/parallel.h"

namespace lab::cpu {
namespace {

/// How many rows of a transposed operand are read at a time. Columns are gathered across rows.
/// Where rows are a multiple of 4 KiB apart, as those of 4,096 logits are, all elements of a column
/// compete for the same few cache lines; this many rows fit.
constexpr int64_t kRowsAtATime = 128;

bool rows_compete(const Matrix& m) { return m.ld % 1024 == 0 && m.rows > kRowsAtATime; }

}  // namespace

void matmul(Transpose transpose_a, Transpose transpose_b, float alpha, const Matrix& a,
            const Matrix& b, float beta, const Matrix& c) {
  const bool ta = transpose_a == Transpose::kYes;
  const bool tb = transpose_b == Transpose::kYes;
  const int64_t inner = ta ? a.rows : a.columns;
  if (c.rows == 0 || c.columns == 0) return;
  if (inner == 0) {  // an empty sum
    if (beta == 0.0F)
      for (int64_t r = 0; r < c.rows; ++r) std::fill_n(c.row(r), c.columns, 0.0F);
    return;
  }
  if (ta && !tb && rows_compete(a)) {
    for (int64_t first = 0; first < inner; first += kRowsAtATime) {
      const int64_t last = std::min(first + kRowsAtATime, inner);
      matmul(transpose_a, transpose_b, alpha, rows_of(a, first, last), rows_of(b, first, last),
             first == 0 ? beta : 1.0F, c);
    }
    return;
  }
  make_threads_certain();
  // oneDNN insists on ld >= 1 and >= columns, also for matrices of one row.
  const dnnl_status_t status = dnnl_sgemm(ta ? 'T' : 'N', tb ? 'T' : 'N', c.rows, c.columns, inner,
                                          alpha, a.data, a.ld, b.data, b.ld, beta, c.data, c.ld);
  require(status == dnnl_success, "matrix product [{} x {}] x [{} x {}]: oneDNN returned status {}",
          c.rows, inner, inner, c.columns, static_cast<int>(status));
}

}  // namespace lab::cpu
