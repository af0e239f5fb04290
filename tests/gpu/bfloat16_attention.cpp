#include "tests/gpu/bfloat16_attention.h"

#include <fmt/format.h>

#include "tests/gpu/bfloat16_numbers.h"

namespace lab::test {
namespace {

/// With room for q, k and v if `has_keys`.
int64_t width(const AttentionShape& s, const Placement& place, bool has_queries, bool has_keys) {
  return place.left + place.right +
         ((has_queries ? s.heads : 0) + (has_keys ? 2 * s.kv_heads : 0)) * s.head_dim;
}

/// Gradients are computed from `given`, or else from what the forward pass has just made.
AttentionResults attention_on(Device device, const AttentionInputs& in,
                              const AttentionResults* given) {
  const AttentionShape& s = in.shape;
  const AttentionColumns at(s, in.place);
  const int64_t rows = s.batch * s.queries;
  const auto at_q = [&](const Tensor& m) { return m.columns(at.q, at.q_end); };
  const Tensor queries = bfloat16_on(device, in.queries);
  const Tensor keys = bfloat16_on(device, in.keys);
  const Tensor k = keys.columns(at.k, at.v);
  const Tensor v = keys.columns(at.v, at.v_end);

  Tensor y = bfloat16_on(device, rounded_random({rows, width(s, in.place, true, false)}, 3));
  Tensor logsumexp = random_tensor({s.batch, s.heads, s.queries}, 4).to(device);
  attention_forward(s, at_q(queries), k, v, at_q(y), logsumexp);
  AttentionResults results{y.to(Device::kCpu), logsumexp.to(Device::kCpu), {}};
  if (s.queries != s.keys) return results;

  const Tensor dy = bfloat16_on(device, in.dy);
  const Tensor gradients =
      bfloat16_on(device, rounded_random({rows, width(s, in.place, true, true)}, 6));
  if (given != nullptr) {
    y = given->y;
    logsumexp = given->logsumexp;
  }
  attention_backward(s, at_q(dy), at_q(queries), k, v, at_q(y), logsumexp, at_q(gradients),
                     gradients.columns(at.k, at.v), gradients.columns(at.v, at.v_end));
  results.gradients = gradients.to(Device::kCpu);
  return results;
}

}  // namespace

AttentionColumns::AttentionColumns(const AttentionShape& s, const Placement& place)
    : q(place.left),
      q_end(q + s.heads * s.head_dim),
      k(s.queries == s.keys ? q_end : place.left),
      v(k + s.kv_heads * s.head_dim),
      v_end(v + s.kv_heads * s.head_dim) {}

AttentionInputs::AttentionInputs(const AttentionShape& s, Placement p, float size)
    : shape(s),
      place(std::move(p)),
      queries(rounded_random({s.batch * s.queries, width(s, place, true, s.queries == s.keys)}, 1,
                             size)),
      keys(s.queries == s.keys
               ? queries
               : rounded_random({s.batch * s.keys, width(s, place, false, true)}, 2, size)),
      dy(rounded_random({s.batch * s.queries, width(s, place, true, false)}, 5)) {}

std::vector<Tensor> AttentionResults::all() const {
  std::vector<Tensor> result = {y, logsumexp};
  if (gradients.defined()) result.push_back(gradients);
  return result;
}

AttentionResults attention_on_gpu(const AttentionInputs& in) {
  return attention_on(Device::kCuda, in, nullptr);
}

AttentionResults attention_on_cpu(const AttentionInputs& in, const AttentionResults& given) {
  return attention_on(Device::kCpu, in, &given);
}

std::string name_of(const AttentionShape& s, const Placement& place) {
  return fmt::format("B{}_Tq{}_Tk{}_H{}_K{}_D{}_{}", s.batch, s.queries, s.keys, s.heads,
                     s.kv_heads, s.head_dim, place.name);
}

}  // namespace lab::test
