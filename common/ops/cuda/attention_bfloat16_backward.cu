// Causal attention of bfloat16, backward, on tensor cores. Formulas and kernels are those of
// attention_backward.cu: one for delta, one for dK and dV, one for dQ, each sum in one block and in
// a fixed order.
#include "common/cuda/launch.h"
#include "common/ops/cuda/attention_bfloat16_backward.h"

namespace lab::cuda {
namespace {

/// delta: one warp per query and head.
__global__ void attention_delta_bfloat16_kernel(BackwardArguments a) {
  const AttentionShape& s = a.shape;
  const int64_t index = row_of_warp();  // in [batch, heads, queries]
  if (index >= s.batch * s.heads * s.queries) return;
  const int64_t row = index / (s.heads * s.queries) * s.queries + index % s.queries;
  const int64_t column = index / s.queries % s.heads * s.head_dim;
  const __nv_bfloat16* dy = a.dy.row(row) + column;
  const __nv_bfloat16* y = a.y.row(row) + column;
  float sum = 0.0F;
  for (int64_t d = threadIdx.x; d < s.head_dim; d += kWarp)
    sum += __bfloat162float(dy[d]) * __bfloat162float(y[d]);
  sum = warp_sum(sum);
  if (threadIdx.x == 0) a.delta[index] = sum;
}

}  // namespace

void attention_backward(const Context& context, const AttentionShape& shape,
                        const Bfloat16Matrix& dy, const Bfloat16Matrix& q, const Bfloat16Matrix& k,
                        const Bfloat16Matrix& v, const Bfloat16Matrix& y, const float* logsumexp,
                        const Bfloat16Matrix& dq, const Bfloat16Matrix& dk,
                        const Bfloat16Matrix& dv) {
  const int64_t rows = shape.batch * shape.heads * shape.queries;
  if (rows == 0) return;
  const bool packs = eights_fit(shape.head_dim, dy, q, k, v, dq, dk, dv);
  const Scratch<float> delta(context, static_cast<size_t>(rows));
  const BackwardArguments arguments{shape,     dy,           q,  k,  v,  y,
                                    logsumexp, delta.data(), dq, dk, dv, packs};
  launch(attention_delta_bfloat16_kernel, row_grid(rows), row_block(), context.stream(), arguments);
  attention_dk_dv(context, arguments);
  attention_dq(context, arguments);
}

}  // namespace lab::cuda
