#include "common/model/layer.h"

#include "common/ops/ops.h"

namespace lab {
namespace {

int64_t query_width(const LlamaConfig& c) { return c.heads * c.head_dim(); }
int64_t key_width(const LlamaConfig& c) { return c.kv_heads * c.head_dim(); }

/// Queries, keys and values inside a [N, Q+2K] matrix.
struct Qkv {
  Qkv(const LlamaConfig& c, const Tensor& all)
      : q(all.columns(0, query_width(c))),
        k(all.columns(query_width(c), query_width(c) + key_width(c))),
        v(all.columns(query_width(c) + key_width(c), query_width(c) + 2 * key_width(c))),
        qk(all.columns(0, query_width(c) + key_width(c))) {}
  Tensor q, k, v;
  Tensor qk;  // what is rotated
};

AttentionShape attention_shape(const LayerShape& s) {
  return {.batch = s.batch,
          .queries = s.length,
          .keys = s.length,
          .heads = s.config.heads,
          .kv_heads = s.config.kv_heads,
          .head_dim = s.config.head_dim()};
}

}  // namespace

LayerActivations::LayerActivations(const LlamaConfig& c, int64_t batch, int64_t length,
                                   Device device)
    : attention_inverse_rms(Tensor::empty({batch * length}, device)),
      qkv(Tensor::empty({batch * length, query_width(c) + 2 * key_width(c)}, device)),
      attention(Tensor::empty({batch * length, query_width(c)}, device)),
      logsumexp(Tensor::empty({batch, c.heads, length}, device)),
      middle(Tensor::empty({batch * length, c.dim}, device)),
      mlp_inverse_rms(Tensor::empty({batch * length}, device)),
      gate_up(Tensor::empty({batch * length, 2 * c.hidden_dim}, device)) {}

size_t LayerActivations::bytes() const {
  return attention_inverse_rms.bytes() + qkv.bytes() + attention.bytes() + logsumexp.bytes() +
         middle.bytes() + mlp_inverse_rms.bytes() + gate_up.bytes();
}

LayerScratch::LayerScratch(const LlamaConfig& c, int64_t batch, int64_t length, Device device)
    : normed(Tensor::empty({batch * length, c.dim}, device)),
      normed_gradient(Tensor::empty({batch * length, c.dim}, device)),
      hidden(Tensor::empty({batch * length, c.hidden_dim}, device)),
      attention(Tensor::empty({batch * length, query_width(c)}, device)),
      qkv(Tensor::empty({batch * length, query_width(c) + 2 * key_width(c)}, device)) {}

void layer_forward(const LayerShape& shape, const LayerWeights& w, const Tensor& rope_angles,
                   const Tensor& input, LayerActivations& kept, LayerScratch& scratch,
                   const Tensor& output) {
  const float epsilon = shape.config.norm_eps;

  // middle = input + attention(norm(input))
  rmsnorm_forward(input, w.attention_norm.value, epsilon, scratch.normed,
                  kept.attention_inverse_rms);
  linear_forward(scratch.normed, w.qkv.value, kept.qkv);
  const Qkv qkv(shape.config, kept.qkv);
  rope(qkv.qk, rope_angles, shape.length, 0, Rotation::kForward);
  attention_forward(attention_shape(shape), qkv.q, qkv.k, qkv.v, kept.attention, kept.logsumexp);
  kept.middle.copy_from(input);
  linear_forward(kept.attention, w.attention_out.value, kept.middle, /*accumulate=*/true);

  // output = middle + mlp(norm(middle))
  rmsnorm_forward(kept.middle, w.mlp_norm.value, epsilon, scratch.normed, kept.mlp_inverse_rms);
  linear_forward(scratch.normed, w.gate_up.value, kept.gate_up);
  swiglu_forward(kept.gate_up, scratch.hidden);
  output.copy_from(kept.middle);
  linear_forward(scratch.hidden, w.down.value, output, /*accumulate=*/true);
}

void layer_backward(const LayerShape& shape, const LayerWeights& w, const Tensor& rope_angles,
                    const Tensor& input, LayerActivations& kept, LayerScratch& scratch,
                    const Tensor& gradient) {
  // Through the MLP. `gradient` passes the addition unchanged and grows by the MLP's share.
  linear_backward_input(gradient, w.down.value, scratch.hidden);
  swiglu_backward(kept.gate_up, scratch.hidden);  // scratch.hidden holds SwiGLU's output again
  linear_backward_weight(gradient, scratch.hidden, w.down.gradient);
  rmsnorm_apply(kept.middle, w.mlp_norm.value, kept.mlp_inverse_rms, scratch.normed);
  linear_backward_weight(kept.gate_up, scratch.normed, w.gate_up.gradient);
  linear_backward_input(kept.gate_up, w.gate_up.value, scratch.normed_gradient);
  rmsnorm_backward(scratch.normed_gradient, kept.middle, w.mlp_norm.value, kept.mlp_inverse_rms,
                   gradient, w.mlp_norm.gradient);

  // Through attention, likewise.
  linear_backward_weight(gradient, kept.attention, w.attention_out.gradient);
  linear_backward_input(gradient, w.attention_out.value, scratch.attention);
  const Qkv qkv(shape.config, kept.qkv);
  const Qkv qkv_gradient(shape.config, scratch.qkv);
  attention_backward(attention_shape(shape), scratch.attention, qkv.q, qkv.k, qkv.v, kept.attention,
                     kept.logsumexp, qkv_gradient.q, qkv_gradient.k, qkv_gradient.v);
  rope(qkv_gradient.qk, rope_angles, shape.length, 0, Rotation::kBackward);
  rmsnorm_apply(input, w.attention_norm.value, kept.attention_inverse_rms, scratch.normed);
  linear_backward_weight(scratch.qkv, scratch.normed, w.qkv.gradient);
  linear_backward_input(scratch.qkv, w.qkv.value, scratch.normed_gradient);
  rmsnorm_backward(scratch.normed_gradient, input, w.attention_norm.value,
                   kept.attention_inverse_rms, gradient, w.attention_norm.gradient);
}

}  // namespace lab
