#include <algorithm>

#include "common/ops/cpu/kernels.h"
#include "common/tensor/parallel.h"

namespace lab::cpu {

void embedding_forward(const int32_t* tokens, const Matrix& table, const Matrix& y) {
  for (int64_t n = 0; n < y.rows; ++n) {
    if (tokens[n] < 0)
      std::fill_n(y.row(n), y.columns, 0.0F);
    else
      std::copy_n(table.row(tokens[n]), y.columns, y.row(n));
  }
}

// A token may occur many times: threads divide the channels among them, not the positions, so that
// one thread forms each sum, in the order of the positions.
void embedding_backward(const int32_t* tokens, const Matrix& dy, const Matrix& dtable) {
  parallel_blocks(dy.columns, 64, [&](int64_t first, int64_t last) {
    for (int64_t n = 0; n < dy.rows; ++n) {
      if (tokens[n] < 0) continue;
      const float* gradient = dy.row(n);
      float* sum = dtable.row(tokens[n]);
#pragma omp simd
      for (int64_t c = first; c < last; ++c) sum[c] += gradient[c];
    }
  });
}

}  // namespace lab::cpu
