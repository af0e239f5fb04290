// The oracle is the library's whole layer with one block switched off: a block whose last matrix is
// 0 adds nothing.
#include "tests/labs/10_tensor_parallel/block_oracle.h"

#include "common/ops/ops.h"

namespace lab10 {

namespace {

bool belongs_to(Block block, const std::string& name) {
  const bool attention = name.find("self_attn") != std::string::npos ||
                         name.find("input_layernorm") != std::string::npos;
  return attention == (block == Block::kAttention);
}

lab::LayerActivations copy_of(const lab::LayerActivations& kept) {
  lab::LayerActivations copy = kept;
  for (Tensor* tensor : {&copy.attention_inverse_rms, &copy.qkv, &copy.attention, &copy.logsumexp,
                         &copy.middle, &copy.mlp_inverse_rms, &copy.gate_up})
    *tensor = tensor->clone();
  return copy;
}

/// The columns that a slice has of a matrix that consists of blocks of so many columns, each of
/// them divided.
Numbers columns_of(const Tensor& matrix, const std::vector<int64_t>& widths,
                   const lab::TensorSlice& own) {
  Numbers numbers;
  for (int64_t row = 0; row < matrix.size(0); ++row) {
    int64_t first = 0;
    for (const int64_t width : widths) {
      const lab::Range range = lab::range_of(width, own);
      const Tensor columns =
          matrix.rows(row, row + 1).columns(first + range.first, first + range.last);
      for (const double number : numbers_of(columns)) numbers.push_back(number);
      first += width;
    }
  }
  return numbers;
}

}  // namespace

Values initial_values(const BlockCase& c) {
  const lab::Weights weights(c.model, {.first_layer = 0, .last_layer = 1}, lab::Device::kCpu, 1);
  Values values;
  for (const lab::Parameter& parameter : weights.named)
    values[parameter.name] = parameter.value.clone();
  return values;
}

Values draw_values(const BlockCase& c) {
  const lab::Weights weights(c.model, {.first_layer = 0, .last_layer = 1}, lab::Device::kCpu, 1);
  Values values;
  // Norms are not 1, and matrices large enough for softmax and SiLU to bend.
  for (const lab::Parameter& parameter : weights.named) {
    const Tensor value = draw_tensor(parameter.value.shape(), 0.6, c.seed + 10 + values.size());
    if (value.dims() == 1)
      for (float& number : value.values()) number += 1.0F;
    if (parameter.name.ends_with("gate_proj.weight")) lab::scale(value, c.gates);
    values[parameter.name] = value;
  }
  return values;
}

Tensor input_of(const BlockCase& c, size_t microbatch) {
  return draw_tensor({c.rows(), c.model.dim}, 1.5, c.seed + 100 + microbatch);
}

Tensor gradient_of(const BlockCase& c, size_t microbatch) {
  return draw_tensor({c.rows(), c.model.dim}, c.gradients, c.seed + 200 + microbatch);
}

Values only_slice(const Values& values, const lab::TensorSlice& own) {
  Values masked;
  for (const auto& [name, value] : values) {
    masked[name] = Tensor::zeros(value.shape());
    lab::slice_of(name, masked[name], own).copy_from(lab::slice_of(name, value, own));
  }
  return masked;
}

BlockResult compute(const BlockCase& c, Block block, const Values& values, bool rotates) {
  lab::Weights weights(c.model, {.first_layer = 0, .last_layer = 1}, lab::Device::kCpu, 1);
  for (const lab::Parameter& parameter : weights.named)
    parameter.value.copy_from(values.at(parameter.name));
  lab::LayerWeights& layer = weights.layers[0];
  (block == Block::kMlp ? layer.attention_out : layer.down).value.fill(0.0F);
  const Tensor angles = lab::rope_table(c.model.context, c.model.head_dim(), c.model.rope_theta);
  const int64_t half = c.model.head_dim() / 2;
  if (!rotates) {
    angles.columns(0, half).fill(1.0F);
    angles.columns(half, 2 * half).fill(0.0F);
  }
  const lab::LayerShape shape{c.model, c.batch, c.length};
  lab::LayerScratch scratch(c.model, c.batch, c.length, {});
  BlockResult result;
  for (size_t m = 0; m < c.microbatches; ++m) {
    lab::LayerActivations kept(c.model, c.batch, c.length, {});
    const Tensor input = input_of(c, m);
    const Tensor output = Tensor::empty(input.shape());
    lab::layer_forward(shape, layer, angles, input, kept, scratch, output);
    result.outputs.push_back(numbers_of(output));
    result.kept.push_back(copy_of(kept));
    const Tensor gradient = gradient_of(c, m);
    lab::layer_backward(shape, layer, angles, input, kept, scratch, gradient);
    result.gradients.push_back(numbers_of(gradient));
  }
  for (const lab::Parameter& parameter : weights.named)
    if (belongs_to(block, parameter.name)) result.weights[parameter.name] = parameter.gradient;
  return result;
}

std::vector<Kept> kept_by(const BlockCase& c, Block block, const BlockResult& whole, size_t m,
                          const lab::TensorSlice& own) {
  const lab::LayerActivations& kept = whole.kept[m];
  const int64_t hidden = c.model.hidden_dim;
  if (block == Block::kMlp)
    return {{"middle", "", numbers_of(kept.middle)},  // which is only read
            {"mlp_inverse_rms", "rmsnorm_forward, with shape.config.norm_eps",
             numbers_of(kept.mlp_inverse_rms)},
            {"gate_up", "the norm's weight and the product with weights.gate_up",
             columns_of(kept.gate_up, {hidden, hidden}, own)}};
  const int64_t queries = c.model.heads * c.model.head_dim();
  const int64_t keys = c.model.kv_heads * c.model.head_dim();
  const lab::Range heads = lab::range_of(c.model.heads, own);
  Numbers logsumexp;
  for (int64_t b = 0; b < c.batch; ++b)
    for (int64_t i = heads.first * c.length; i < heads.last * c.length; ++i)
      logsumexp.push_back(kept.logsumexp.data()[b * c.model.heads * c.length + i]);
  return {{"attention_inverse_rms", "rmsnorm_forward, with shape.config.norm_eps",
           numbers_of(kept.attention_inverse_rms)},
          {"qkv", "the norm's weight, the product with weights.qkv and rope",
           columns_of(kept.qkv, {queries, keys, keys}, own)},
          {"attention",
           "which columns are queries, keys and values, and lab::attention_forward with "
           "shape.attention()",
           columns_of(kept.attention, {queries}, own)},
          {"logsumexp", "lab::attention_forward", logsumexp}};
}

}  // namespace lab10
