#include "common/model/layer.h"

#include "common/ops/ops.h"
#include "common/tensor/memory_account.h"

namespace lab {
namespace {

/// Queries, keys and values inside a [N, Q+2K] matrix.
struct Qkv {
  Qkv(const LlamaConfig& c, const Tensor& all)
      : q(all.columns(0, c.query_width())),
        k(all.columns(c.query_width(), c.query_width() + c.key_width())),
        v(all.columns(c.query_width() + c.key_width(), c.query_width() + 2 * c.key_width())),
        qk(all.columns(0, c.query_width() + c.key_width())) {}
  Tensor q, k, v;
  Tensor qk;  // what is rotated
};

/// Weights as products take them.
struct Matrices {
  Matrices(const LayerWeights& w, ElementType type)
      : qkv(w.qkv.operand(type)),
        attention_out(w.attention_out.operand(type)),
        gate_up(w.gate_up.operand(type)),
        down(w.down.operand(type)) {}
  const Tensor& qkv;
  const Tensor& attention_out;
  const Tensor& gate_up;
  const Tensor& down;
};

/// Keys and values of all positions so far: those of this call, which also go into the cache, after
/// the past ones that it holds.
KeysAndValues with_past(const LayerShape& shape, const Qkv& qkv, const KeysAndValues* cache) {
  if (cache == nullptr) return {qkv.k, qkv.v};
  const int64_t end = shape.past + shape.length;
  cache->keys.rows(shape.past, end).copy_from(qkv.k);
  cache->values.rows(shape.past, end).copy_from(qkv.v);
  return {cache->keys.rows(0, end), cache->values.rows(0, end)};
}

}  // namespace

AttentionShape LayerShape::attention() const {
  return {.batch = batch,
          .queries = length,
          .keys = past + length,
          .heads = config.heads,
          .kv_heads = config.kv_heads,
          .head_dim = config.head_dim()};
}

Tensor between_operations(const Tensor& x, const LayerMemory& memory, Tensor& room) {
  if (!memory.rounds()) return x;
  if (!room.defined() || room.shape() != x.shape()) {
    const MemoryOf kind(MemoryKind::kActivations);
    Shape padded = x.shape();
    if (memory.device == Device::kCuda)  // tensor cores need rows at multiples of 16 bytes
      padded.back() = (padded.back() + 7) / 8 * 8;
    room = Tensor::empty(padded, memory.device, memory.between()).columns(0, x.size(-1));
  }
  room.copy_from(x);
  return room;
}

LayerActivations::LayerActivations(const LlamaConfig& c, int64_t batch, int64_t length,
                                   LayerMemory memory) {
  const int64_t rows = batch * length;
  const auto between = [&](int64_t columns) {
    return Tensor::empty({rows, columns}, memory.device, memory.between());
  };
  attention_inverse_rms = Tensor::empty({rows}, memory.device);
  qkv = between(c.query_width() + 2 * c.key_width());
  attention = between(c.query_width());
  logsumexp = Tensor::empty({batch, c.heads, length}, memory.device);
  middle = Tensor::empty({rows, c.dim}, memory.device);
  mlp_inverse_rms = Tensor::empty({rows}, memory.device);
  gate_up = between(2 * c.hidden_dim);
}

size_t LayerActivations::bytes() const {
  return attention_inverse_rms.bytes() + qkv.bytes() + attention.bytes() + logsumexp.bytes() +
         middle.bytes() + mlp_inverse_rms.bytes() + gate_up.bytes();
}

LayerScratch::LayerScratch(const LlamaConfig& c, int64_t batch, int64_t length,
                           LayerMemory memory_of_layers)
    : memory(memory_of_layers) {
  const auto between = [&](int64_t columns) {
    return Tensor::empty({batch * length, columns}, memory.device, memory.between());
  };
  normed = between(c.dim);
  normed_gradient = between(c.dim);
  hidden = between(c.hidden_dim);
  attention = between(c.query_width());
  qkv = between(c.query_width() + 2 * c.key_width());
}

void layer_forward(const LayerShape& shape, const LayerWeights& w, const Tensor& rope_angles,
                   const Tensor& input, LayerActivations& kept, LayerScratch& scratch,
                   const Tensor& output, const KeysAndValues* cache) {
  const float epsilon = shape.config.norm_eps;
  const Matrices matrices(w, scratch.memory.between());

  // middle = input + attention(norm(input))
  rmsnorm_forward(input, w.attention_norm.value, epsilon, scratch.normed,
                  kept.attention_inverse_rms);
  linear_forward(scratch.normed, matrices.qkv, kept.qkv);
  const Qkv qkv(shape.config, kept.qkv);
  rope(qkv.qk, rope_angles, shape.length, shape.past, Rotation::kForward);
  const auto [keys, values] = with_past(shape, qkv, cache);
  attention_forward(shape.attention(), qkv.q, keys, values, kept.attention, kept.logsumexp);
  kept.middle.copy_from(input);
  linear_forward(kept.attention, matrices.attention_out, kept.middle, /*accumulate=*/true);

  // output = middle + mlp(norm(middle))
  rmsnorm_forward(kept.middle, w.mlp_norm.value, epsilon, scratch.normed, kept.mlp_inverse_rms);
  linear_forward(scratch.normed, matrices.gate_up, kept.gate_up);
  swiglu_forward(kept.gate_up, scratch.hidden);
  output.copy_from(kept.middle);
  linear_forward(scratch.hidden, matrices.down, output, /*accumulate=*/true);
}

void layer_backward(const LayerShape& shape, const LayerWeights& w, const Tensor& rope_angles,
                    const Tensor& input, LayerActivations& kept, LayerScratch& scratch,
                    const Tensor& gradient) {
  const Matrices matrices(w, scratch.memory.between());
  // Through the MLP. `gradient` passes through the addition unchanged, and the MLP adds its part.
  const Tensor mlp_gradient = between_operations(gradient, scratch.memory, scratch.rounded);
  linear_backward_input(mlp_gradient, matrices.down, scratch.hidden);
  swiglu_backward(kept.gate_up, scratch.hidden);  // scratch.hidden holds SwiGLU's output again
  linear_backward_weight(mlp_gradient, scratch.hidden, w.down.gradient);
  rmsnorm_apply(kept.middle, w.mlp_norm.value, kept.mlp_inverse_rms, scratch.normed);
  linear_backward_weight(kept.gate_up, scratch.normed, w.gate_up.gradient);
  linear_backward_input(kept.gate_up, matrices.gate_up, scratch.normed_gradient);
  rmsnorm_backward(scratch.normed_gradient, kept.middle, w.mlp_norm.value, kept.mlp_inverse_rms,
                   gradient, w.mlp_norm.gradient);

  // Through attention, likewise.
  const Tensor attention_gradient = between_operations(gradient, scratch.memory, scratch.rounded);
  linear_backward_weight(attention_gradient, kept.attention, w.attention_out.gradient);
  linear_backward_input(attention_gradient, matrices.attention_out, scratch.attention);
  const Qkv qkv(shape.config, kept.qkv);
  const Qkv qkv_gradient(shape.config, scratch.qkv);
  attention_backward(shape.attention(), scratch.attention, qkv.q, qkv.k, qkv.v, kept.attention,
                     kept.logsumexp, qkv_gradient.q, qkv_gradient.k, qkv_gradient.v);
  rope(qkv_gradient.qk, rope_angles, shape.length, 0, Rotation::kBackward);
  rmsnorm_apply(input, w.attention_norm.value, kept.attention_inverse_rms, scratch.normed);
  linear_backward_weight(scratch.qkv, scratch.normed, w.qkv.gradient);
  linear_backward_input(scratch.qkv, matrices.qkv, scratch.normed_gradient);
  rmsnorm_backward(scratch.normed_gradient, input, w.attention_norm.value,
                   kept.attention_inverse_rms, gradient, w.attention_norm.gradient);
}

}  // namespace lab
