#include "common/model/weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <random>

#include "common/model/slice.h"
#include "common/ops/ops.h"
#include "common/tensor/memory_account.h"

namespace lab {
namespace {

constexpr int64_t kAlignment = 64;  // elements: 256 bytes
constexpr const char* kEmbedding = "model.embed_tokens.weight";

int64_t aligned(int64_t count) { return (count + kAlignment - 1) / kAlignment * kAlignment; }

int64_t count_of(const Shape& shape) {
  int64_t count = 1;
  for (int64_t extent : shape) count *= extent;
  return count;
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

Weights::Weights(const LlamaConfig& model, const StageSpan& stage, Device device, uint64_t seed,
                 const TensorSlice& slice, WeightMemory whose)
    : layers(static_cast<size_t>(stage.layers())),
      whole(model),
      config(slice_config(model, slice)),
      span(stage),
      tensor_slice(slice),
      memory(whose),
      tied_here(model.tied_head && stage.embeds && stage.has_head) {
  if (span.embeds) parts.push_back({.name = "model.embed_tokens"});
  for (int64_t l = span.first_layer; l < span.last_layer; ++l)
    parts.push_back({.name = fmt::format("model.layers.{}", l)});
  if (span.has_head) parts.push_back({.name = tied_here ? "model.norm" : "model.norm and lm_head"});
  int64_t size = 0;
  for (size_t p = 0; p < parts.size(); ++p) {
    for (const Slot& slot : slots(p)) {
      parts[p].size += aligned(count_of(slot.shape));
      weight_count += count_of(slot.shape);
    }
    size += parts[p].size;
    parts[p].first_named = named.size();
    const std::vector<Parameter> names = named_views(p);
    named.insert(named.end(), names.begin(), names.end());
  }
  if (memory == WeightMemory::kBound) return;
  {
    const MemoryOf kind(MemoryKind::kWeights);
    values = Tensor::zeros({size}, device);
  }
  const MemoryOf kind(MemoryKind::kGradients);
  gradients = Tensor::zeros({size}, device);
  if (tied_here) head.gradient = Tensor::zeros({config.vocab_size, config.dim}, device);
  for (size_t p = 0, first = 0; p < parts.size(); ++p) {
    const auto begin = static_cast<int64_t>(first);
    bind(p, values.rows(begin, begin + parts[p].size));
    bind_gradient(p, gradients.rows(begin, begin + parts[p].size));
    initialise(p, seed);
    first += static_cast<size_t>(parts[p].size);
  }
}

std::vector<Weights::Slot> Weights::slots(size_t part) {
  const int64_t q = config.query_width();
  const int64_t k = config.key_width();
  const int64_t hidden = config.hidden_dim;
  const int64_t dim = config.dim;
  const int64_t vocab = config.vocab_size;
  if (span.embeds && part == 0) return {{&embedding, {vocab, dim}, {{kEmbedding, vocab}}}};
  const size_t l = part - part_of(0);
  if (l < layers.size()) {
    LayerWeights& layer = layers[l];
    const auto name = [&](const char* rest) {
      return fmt::format("{}.{}", parts[part].name, rest);
    };
    return {{&layer.attention_norm, {dim}, {{name("input_layernorm.weight"), dim}}},
            {&layer.qkv,
             {q + 2 * k, dim},
             {{name("self_attn.q_proj.weight"), q},
              {name("self_attn.k_proj.weight"), k},
              {name("self_attn.v_proj.weight"), k}}},
            {&layer.attention_out, {dim, q}, {{name("self_attn.o_proj.weight"), dim}}},
            {&layer.mlp_norm, {dim}, {{name("post_attention_layernorm.weight"), dim}}},
            {&layer.gate_up,
             {2 * hidden, dim},
             {{name("mlp.gate_proj.weight"), hidden}, {name("mlp.up_proj.weight"), hidden}}},
            {&layer.down, {dim, hidden}, {{name("mlp.down_proj.weight"), dim}}}};
  }
  const Slot last{&norm, {dim}, {{"model.norm.weight", dim}}};
  if (tied_here) return {last};
  return {last, {&head, {vocab, dim}, {{"lm_head.weight", vocab}}}};
}

std::vector<Parameter> Weights::named_views(size_t part) {
  std::vector<Parameter> views;
  const auto rows = [](const Tensor& tensor, int64_t first, int64_t last) {
    return tensor.defined() ? tensor.rows(first, last) : Tensor();
  };
  for (const auto& [weight, shape, names] : slots(part)) {
    int64_t first = 0;
    for (const auto& [name, count] : names) {
      const int64_t last = first + count;
      views.push_back(
          {name, rows(weight->value, first, last), rows(weight->gradient, first, last)});
      first = last;
    }
  }
  return views;
}

void Weights::name_again(size_t part) {
  std::ranges::move(named_views(part),
                    named.begin() + static_cast<std::ptrdiff_t>(first_of_part(part)));
}

void Weights::view_as(Tensor Weight::*numbers, size_t part, const Tensor& flat) {
  int64_t first = 0;
  for (const Slot& slot : slots(part)) {
    const int64_t count = count_of(slot.shape);
    slot.weight->*numbers =
        flat.defined() ? flat.rows(first, first + count).view(slot.shape) : flat;
    first += aligned(count);
  }
}

void Weights::bind(size_t part, const Tensor& flat) {
  view_as(&Weight::value, part, flat);
  if (tied_here && part == 0) head.value = embedding.value;
  name_again(part);
}

void Weights::bind_gradient(size_t part, const Tensor& flat) {
  view_as(&Weight::gradient, part, flat);
  if (tied_here && part == 0 && memory == WeightMemory::kBound) head.gradient = embedding.gradient;
  name_again(part);
}

void Weights::initialise(size_t part, uint64_t seed) {
  for (const Parameter& parameter : named_views(part)) {
    // A tied head that lies on another stage than the embedding starts as the same matrix.
    const bool is_tied_head = config.tied_head && parameter.name == "lm_head.weight";
    const std::string name = is_tied_head ? kEmbedding : parameter.name;
    const float deviation = config.init_std * (name == kEmbedding ? config.embedding_scale : 1.0F);
    if (parameter.value.dims() == 1) {
      parameter.value.fill(1.0F);
    } else if (tensor_slice.ranks == 1) {
      initialise_normal(parameter.value, name, deviation, seed);
    } else {
      const Tensor all = Tensor::empty(whole_shape(name, whole));
      initialise_normal(all, name, deviation, seed);
      parameter.value.copy_from(slice_of(name, all, tensor_slice));
    }
  }
}

void Weights::round() {
  if (!rounded.defined()) {
    const MemoryOf kind(MemoryKind::kWeights);
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
  if (!tied_here || memory == WeightMemory::kBound) return;
  add(head.gradient, embedding.gradient);
  head.gradient.fill(0.0F);
}

}  // namespace lab
