#include "common/model/weights.h"

#include <fmt/format.h>

#include <cmath>
#include <numbers>
#include <random>

#include "common/model/part.h"
#include "common/ops/ops.h"

namespace lab {
namespace {

constexpr int64_t kAlignment = 64;  // elements: 256 bytes
constexpr const char* kEmbedding = "model.embed_tokens.weight";

int64_t aligned(int64_t count) { return (count + kAlignment - 1) / kAlignment * kAlignment; }

/// Hands out consecutive pieces of the two flat buffers. Run once without buffers to get the size,
/// then again to take the pieces.
class Layout {
 public:
  Layout() = default;
  Layout(Tensor values, Tensor gradients)
      : values_(std::move(values)), gradients_(std::move(gradients)) {}

  Weight take(const Shape& shape) {
    int64_t count = 1;
    for (int64_t extent : shape) count *= extent;
    const int64_t first = used_;
    used_ += aligned(count);
    if (!values_.defined()) return {};
    return {.value = values_.rows(first, first + count).view(shape),
            .gradient = gradients_.rows(first, first + count).view(shape),
            .rounded = {}};
  }

  int64_t used() const { return used_; }

 private:
  Tensor values_;
  Tensor gradients_;
  int64_t used_ = 0;
};

void take_all(Layout& layout, const LlamaConfig& c, const StageSpan& span, bool tied_here,
              Weights& weights) {
  const int64_t q = c.heads * c.head_dim();
  const int64_t k = c.kv_heads * c.head_dim();
  weights.layers.clear();
  if (span.embeds) weights.embedding = layout.take({c.vocab_size, c.dim});
  for (int64_t l = span.first_layer; l < span.last_layer; ++l) {
    LayerWeights layer;
    layer.attention_norm = layout.take({c.dim});
    layer.qkv = layout.take({q + 2 * k, c.dim});
    layer.attention_out = layout.take({c.dim, q});
    layer.mlp_norm = layout.take({c.dim});
    layer.gate_up = layout.take({2 * c.hidden_dim, c.dim});
    layer.down = layout.take({c.dim, c.hidden_dim});
    weights.layers.push_back(layer);
  }
  if (span.has_head) {
    weights.norm = layout.take({c.dim});
    if (!tied_here) weights.head = layout.take({c.vocab_size, c.dim});
  }
}

std::vector<Parameter> named_views(const LlamaConfig& c, const StageSpan& span, bool tied_here,
                                   const Weights& weights) {
  std::vector<Parameter> named;
  const auto add = [&](std::string name, const Weight& w) {
    named.push_back({std::move(name), w.value, w.gradient});
  };
  const auto add_rows = [&](std::string name, const Weight& w, int64_t first, int64_t last) {
    named.push_back({std::move(name), w.value.rows(first, last), w.gradient.rows(first, last)});
  };
  const int64_t q = c.heads * c.head_dim();
  const int64_t k = c.kv_heads * c.head_dim();

  if (span.embeds) add(kEmbedding, weights.embedding);
  for (int64_t l = span.first_layer; l < span.last_layer; ++l) {
    const LayerWeights& layer = weights.layers[static_cast<size_t>(l - span.first_layer)];
    const std::string prefix = fmt::format("model.layers.{}.", l);
    add(prefix + "input_layernorm.weight", layer.attention_norm);
    add_rows(prefix + "self_attn.q_proj.weight", layer.qkv, 0, q);
    add_rows(prefix + "self_attn.k_proj.weight", layer.qkv, q, q + k);
    add_rows(prefix + "self_attn.v_proj.weight", layer.qkv, q + k, q + 2 * k);
    add(prefix + "self_attn.o_proj.weight", layer.attention_out);
    add(prefix + "post_attention_layernorm.weight", layer.mlp_norm);
    add_rows(prefix + "mlp.gate_proj.weight", layer.gate_up, 0, c.hidden_dim);
    add_rows(prefix + "mlp.up_proj.weight", layer.gate_up, c.hidden_dim, 2 * c.hidden_dim);
    add(prefix + "mlp.down_proj.weight", layer.down);
  }
  if (span.has_head) {
    add("model.norm.weight", weights.norm);
    if (!tied_here) add("lm_head.weight", weights.head);
  }
  return named;
}

/// FNV-1a: the name's contribution to a parameter's seed.
uint64_t hash(const std::string& text) {
  uint64_t value = 0xcbf29ce484222325U;
  for (unsigned char c : text) value = (value ^ c) * 0x100000001b3U;
  return value;
}

}  // namespace

void initialise_normal(const Tensor& value, const std::string& name, float standard_deviation,
                       uint64_t seed) {
  // Box-Muller over mt19937_64: the standard's normal_distribution differs between libraries.
  std::mt19937_64 engine(hash(name) ^ (seed * 0x9e3779b97f4a7c15U));
  const auto uniform = [&] {  // in (0, 1]
    return (static_cast<double>(engine() >> 11) + 1.0) * 0x1p-53;
  };
  const Tensor on_host = value.device() == Device::kCpu ? value : Tensor::empty(value.shape());
  const std::span<float> numbers = on_host.values();
  for (size_t i = 0; i < numbers.size(); i += 2) {
    const double radius = std::sqrt(-2.0 * std::log(uniform())) * standard_deviation;
    const double angle = 2.0 * std::numbers::pi * uniform();
    numbers[i] = static_cast<float>(radius * std::cos(angle));
    if (i + 1 < numbers.size()) numbers[i + 1] = static_cast<float>(radius * std::sin(angle));
  }
  if (value.device() != Device::kCpu) value.copy_from(on_host);
}

Weights::Weights(const LlamaConfig& whole, const StageSpan& span, Device device, uint64_t seed,
                 const TensorPart& part)
    : tied_here(whole.tied_head && span.embeds && span.has_head) {
  const LlamaConfig config = part_config(whole, part);
  Layout measure;
  take_all(measure, config, span, tied_here, *this);
  values = Tensor::zeros({measure.used()}, device);
  gradients = Tensor::zeros({measure.used()}, device);
  Layout layout(values, gradients);
  take_all(layout, config, span, tied_here, *this);
  named = named_views(config, span, tied_here, *this);
  if (tied_here) {
    head.value = embedding.value;
    head.gradient = Tensor::zeros({config.vocab_size, config.dim}, device);
  }

  for (const Parameter& parameter : named) {
    // A tied head that lies on another stage than the embedding starts as the same matrix.
    const bool is_tied_head = config.tied_head && parameter.name == "lm_head.weight";
    const std::string name = is_tied_head ? kEmbedding : parameter.name;
    if (parameter.value.dims() == 1) {
      parameter.value.fill(1.0F);
    } else if (part.ranks == 1) {
      initialise_normal(parameter.value, name, config.init_std, seed);
    } else {
      const Tensor all = Tensor::empty(whole_shape(name, whole));
      initialise_normal(all, name, config.init_std, seed);
      parameter.value.copy_from(part_of(name, all, part));
    }
  }
}

void Weights::round() {
  if (!rounded.defined()) {
    rounded = Tensor::empty(values.shape(), values.device(), ElementType::kBfloat16);
    const auto place = [this](Weight& weight) {
      const int64_t first = weight.value.data() - values.data();
      const Tensor piece = rounded.rows(first, first + weight.value.numel());
      weight.rounded = piece.view(weight.value.shape());
    };
    for (LayerWeights& layer : layers)
      for (Weight* weight : {&layer.qkv, &layer.attention_out, &layer.gate_up, &layer.down})
        place(*weight);
    if (head.value.defined()) place(head);
  }
  rounded.copy_from(values);
}

void Weights::fold_tied_gradient() {
  if (!tied_here) return;
  add(head.gradient, embedding.gradient);
  head.gradient.fill(0.0F);
}

}  // namespace lab
