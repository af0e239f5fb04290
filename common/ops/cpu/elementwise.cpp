#include <vector>

#include "common/ops/cpu/kernels.h"
#include "common/tensor/parallel.h"

namespace lab::cpu {
namespace {

constexpr int64_t kBlock = 1 << 14;  // elements

}  // namespace

void scale(float* x, int64_t count, float factor) {
  parallel_blocks(count, kBlock, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) x[i] *= factor;
  });
}

void add(const Matrix& x, const Matrix& y) {
  parallel_for(0, x.rows, [&](int64_t n) {
    const float* in = x.row(n);
    float* out = y.row(n);
#pragma omp simd
    for (int64_t c = 0; c < x.columns; ++c) out[c] += in[c];
  });
}

void add_scaled(const float* x, float factor, float* y, int64_t count) {
  parallel_blocks(count, kBlock, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) y[i] += factor * x[i];
  });
}

// Sums of blocks of fixed size, added in order: independent of the number of threads.
double sum_of_squares(const float* x, int64_t count) {
  std::vector<double> sums(static_cast<size_t>((count + kBlock - 1) / kBlock));
  parallel_blocks(count, kBlock, [&](int64_t first, int64_t last) {
    double sum = 0.0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = first; i < last; ++i) sum += static_cast<double>(x[i]) * x[i];
    sums[static_cast<size_t>(first / kBlock)] = sum;
  });
  double total = 0.0;
  for (double sum : sums) total += sum;
  return total;
}

}  // namespace lab::cpu
