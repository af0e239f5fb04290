// Matrix products by oneDNN.
#include <dnnl.h>

#include <algorithm>

#include "common/ops/cpu/kernels.h"
#include "common/tensor/error.h"

namespace lab::cpu {

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
  // oneDNN insists on ld >= 1 and >= columns, also for matrices of one row.
  const dnnl_status_t status = dnnl_sgemm(ta ? 'T' : 'N', tb ? 'T' : 'N', c.rows, c.columns, inner,
                                          alpha, a.data, a.ld, b.data, b.ld, beta, c.data, c.ld);
  require(status == dnnl_success, "matrix product [{} x {}] x [{} x {}]: oneDNN returned status {}",
          c.rows, inner, inner, c.columns, static_cast<int>(status));
}

}  // namespace lab::cpu
