#include "tests/labs/10_tensor_parallel/block_trace.h"

#include "common/ops/ops.h"

namespace lab10 {

namespace {

/// Matrices that lie below each other in one product.
Tensor stacked(const std::vector<Tensor>& matrices) {
  int64_t rows = 0;
  for (const Tensor& matrix : matrices) rows += matrix.size(0);
  const Tensor all = Tensor::empty({rows, matrices[0].size(1)});
  int64_t first = 0;
  for (const Tensor& matrix : matrices) {
    all.rows(first, first + matrix.size(0)).copy_from(matrix);
    first += matrix.size(0);
  }
  return all;
}

const Tensor& value(const Values& values, const std::string& end) {
  for (const auto& [name, tensor] : values)
    if (name.ends_with(end)) return tensor;
  stop("the test knows no parameter " + end);
}

}  // namespace

lab::AttentionShape attention_shape(const BlockCase& c) {
  return lab::LayerShape{c.model, c.batch, c.length}.attention();
}

Tensor rope_angles(const BlockCase& c) {
  return lab::rope_table(c.model.context, c.model.head_dim(), c.model.rope_theta);
}

Tensor qkv_gradient(const BlockCase& c, const BlockResult& whole, const BlockTrace& t,
                    size_t microbatch, const Tensor& qkv, bool rotates_back) {
  const lab::LayerActivations& kept = whole.kept[microbatch];
  const Tensor gradient = Tensor::empty(qkv.shape());
  const QkvColumns x(c, qkv);
  const QkvColumns d(c, gradient);
  lab::attention_backward(attention_shape(c), t.last_input_dy, x.q, x.k, x.v, kept.attention,
                          kept.logsumexp, d.q, d.k, d.v);
  if (rotates_back) lab::rope(d.rotated, rope_angles(c), c.length, 0, lab::Rotation::kBackward);
  return gradient;
}

BlockTrace trace(const BlockCase& c, Block block, const Values& values, const BlockResult& whole,
                 size_t microbatch) {
  const bool mlp = block == Block::kMlp;
  const lab::LayerActivations& kept = whole.kept[microbatch];
  BlockTrace t{.input = input_of(c, microbatch),
               .normed = Tensor::empty({c.rows(), c.model.dim}),
               .first = mlp ? kept.gate_up : kept.qkv,
               .last_input = mlp ? Tensor::empty({c.rows(), c.model.hidden_dim}) : kept.attention,
               .output_dy = gradient_of(c, microbatch),
               .last_input_dy = {},
               .first_dy = {},
               .input_dy = gradient_of(c, microbatch)};
  const Tensor norm =
      value(values, mlp ? "post_attention_layernorm.weight" : "input_layernorm.weight");
  const Tensor& inverse_rms = mlp ? kept.mlp_inverse_rms : kept.attention_inverse_rms;
  lab::rmsnorm_apply(t.input, norm, inverse_rms, t.normed);
  if (mlp) lab::swiglu_forward(t.first, t.last_input);

  t.last_input_dy = Tensor::empty(t.last_input.shape());
  lab::linear_backward_input(t.output_dy, value(values, mlp ? "down_proj.weight" : "o_proj.weight"),
                             t.last_input_dy);
  if (mlp) {
    t.first_dy = t.first.clone();
    lab::swiglu_backward(t.first_dy, t.last_input_dy.clone());
  } else {
    t.first_dy = qkv_gradient(c, whole, t, microbatch, t.first);
  }
  const Tensor first =
      mlp ? stacked({value(values, "gate_proj.weight"), value(values, "up_proj.weight")})
          : stacked({value(values, "q_proj.weight"), value(values, "k_proj.weight"),
                     value(values, "v_proj.weight")});
  const Tensor normed_dy = Tensor::empty(t.normed.shape());
  lab::linear_backward_input(t.first_dy, first, normed_dy);
  lab::rmsnorm_backward(normed_dy, t.input, norm, inverse_rms, t.input_dy,
                        Tensor::zeros(norm.shape()));
  return t;
}

Tensor weight_gradient(const BlockCase& c, const std::string& parameter, const Tensor& dy,
                       const Tensor& x) {
  const Tensor all = Tensor::zeros({dy.size(1), x.size(1)});
  lab::linear_backward_weight(dy, x, all);
  const int64_t hidden = c.model.hidden_dim;
  const int64_t queries = c.model.heads * c.model.head_dim();
  const int64_t keys = c.model.kv_heads * c.model.head_dim();
  if (parameter.ends_with("gate_proj.weight")) return all.rows(0, hidden);
  if (parameter.ends_with("up_proj.weight")) return all.rows(hidden, 2 * hidden);
  if (parameter.ends_with("q_proj.weight")) return all.rows(0, queries);
  if (parameter.ends_with("k_proj.weight")) return all.rows(queries, queries + keys);
  if (parameter.ends_with("v_proj.weight")) return all.rows(queries + keys, queries + 2 * keys);
  return all;
}

}  // namespace lab10
