// Attention: lengths around the size of a tile, heads of many widths, shared heads of keys.
#include <fmt/format.h>

#include "common/ops/ops.h"
#include "tests/gpu/op_cases.h"

namespace lab::test {
namespace {

/// Queries, keys and values (or their gradients) side by side in one matrix, as the model keeps
/// them.
struct Projections {
  Projections(Device device, const AttentionShape& s, const Placement& place, uint64_t seed)
      : queries(device, s.batch * s.queries, (s.heads + 2 * s.kv_heads) * s.head_dim, place.left,
                place.right, seed),
        keys(device, s.batch * s.keys, 2 * s.kv_heads * s.head_dim, place.left, place.right,
             seed + 1) {
    const int64_t kv = s.kv_heads * s.head_dim;
    const int64_t width = s.heads * s.head_dim;
    const bool one = s.queries == s.keys;
    q = queries.inner.columns(0, width);
    k = one ? queries.inner.columns(width, width + kv) : keys.inner.columns(0, kv);
    v = one ? queries.inner.columns(width + kv, width + 2 * kv) : keys.inner.columns(kv, 2 * kv);
  }

  Inset queries;
  Inset keys;  // if there are more keys than queries, in a separate matrix
  Tensor q, k, v;
};

}  // namespace

// The tolerance is that of gradients, through two exponentials.
OpCase attention_case(const AttentionShape& s, const Placement& place, float size,
                      double tolerance) {
  const auto run = [=](Device device) {
    const int64_t rows = s.batch * s.queries;
    const Projections in(device, s, place, 1);
    scale(in.queries.all, size);
    scale(in.keys.all, size);
    const Inset y(device, rows, s.heads * s.head_dim, place.left, place.right, 3);
    const Tensor logsumexp = random_tensor({s.batch, s.heads, s.queries}, 4).to(device);
    attention_forward(s, in.q, in.k, in.v, y.inner, logsumexp);
    std::vector<Tensor> results = {y.all, logsumexp};
    if (s.queries == s.keys) {
      const Inset dy(device, rows, s.heads * s.head_dim, place.left, place.right, 5);
      const Projections out(device, s, place, 6);
      attention_backward(s, dy.inner, in.q, in.k, in.v, y.inner, logsumexp, out.q, out.k, out.v);
      results.push_back(out.queries.all);
    }
    return results;
  };
  return {fmt::format("attention_B{}_Tq{}_Tk{}_H{}_K{}_D{}_size{}_{}", s.batch, s.queries, s.keys,
                      s.heads, s.kv_heads, s.head_dim, static_cast<int>(size), place.name),
          run, tolerance};
}

std::vector<OpCase> attention_cases() {
  std::vector<OpCase> cases;
  for (const AttentionShape& shape : {
           AttentionShape{1, 1, 1, 1, 1, 8},     // one position
           AttentionShape{0, 5, 5, 2, 2, 8},     // no sequence
           AttentionShape{2, 5, 5, 2, 2, 6},     // heads that are no multiple of a pack
           AttentionShape{1, 31, 31, 1, 1, 15},  // and of an odd width
           AttentionShape{1, 65, 65, 4, 2, 48},  // a tile and a row
           AttentionShape{1, 1, 77, 4, 2, 48},   // decoding
           AttentionShape{2, 3, 70, 2, 1, 64},
       })
    for (const Placement& place : placements()) cases.push_back(attention_case(shape, place));
  const Placement dense = placements().front();
  for (const AttentionShape& shape : {
           AttentionShape{1, 64, 64, 3, 1, 64},  // a tile
           AttentionShape{1, 200, 200, 2, 1, 32},
           AttentionShape{2, 33, 33, 2, 2, 64},
           AttentionShape{1, 40, 40, 2, 1, 128},
           AttentionShape{1, 70, 70, 1, 1, 80},
           AttentionShape{1, 66, 130, 1, 1, 16},
       })
    cases.push_back(attention_case(shape, dense));
  // Scores of hundreds: without subtracting the largest one, exponentials overflow. Rounding moves
  // such a score by about 1e-5, and with it, relatively, its probability: fused and separate
  // multiplications alone may differ by more than the other cases' tolerance.
  cases.push_back(attention_case({1, 40, 40, 1, 1, 32}, dense, 12.0F, 5e-5));
  return cases;
}

}  // namespace lab::test
