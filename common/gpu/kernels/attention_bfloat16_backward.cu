// Causal attention of bfloat16, backward, on tensor cores. Formulas and kernels are those of
// attention_backward.cu: one for delta, one for dK and dV, one for dQ, each sum in one block and in
// a fixed order.
#include "common/gpu/cuda/launch.h"
#include "common/gpu/kernels/attention_bfloat16_backward.h"

namespace lab::cuda {
void attention_backward(const Context& context, const AttentionShape& shape,
                        const Bfloat16Matrix& dy, const Bfloat16Matrix& q, const Bfloat16Matrix& k,
                        const Bfloat16Matrix& v, const Bfloat16Matrix& y, const float* logsumexp,
                        const Bfloat16Matrix& dq, const Bfloat16Matrix& dk,
                        const Bfloat16Matrix& dv) {
  const int64_t rows = shape.batch * shape.heads * shape.queries;
  if (rows == 0) return;
  const bool packs = eights_fit(shape.head_dim, dy, q, k, v, dq, dk, dv);
  const Scratch<float> delta(context, static_cast<size_t>(rows));
  const BackwardArguments arguments{shape,        dy, q,  k,  v,    logsumexp,
                                    delta.data(), dq, dk, dv, packs};
  launch(attention_delta_kernel<__nv_bfloat16>, row_grid(rows), row_block(), context.stream(), shape,
         dy, y, delta.data());
  attention_dk_dv(context, arguments);
  attention_dq(context, arguments);
}

}  // namespace lab::cuda
