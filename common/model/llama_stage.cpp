#include "common/model/llama_stage.h"

#include <algorithm>
#include <optional>

#include "common/model/layer.h"
#include "common/model/weights.h"
#include "common/ops/ops.h"
#include "common/tensor/error.h"
#include "common/tensor/parallel.h"

namespace lab {
namespace {

/// All that one microbatch in flight holds. Recycled, so that a step allocates nothing.
struct InFlight {
  InFlight(const LlamaConfig& config, const StageSpan& span, int64_t batch_size, int64_t sequence,
           Device device)
      : batch(batch_size), length(sequence) {
    const int64_t rows = batch * length;
    const int64_t layer_count = span.last_layer - span.first_layer;
    for (int64_t l = 0; l < layer_count; ++l) layers.emplace_back(config, batch, length, device);
    for (int64_t l = 0; l <= layer_count; ++l)
      hidden.push_back(Tensor::empty({rows, config.dim}, device));
    if (span.has_head) {
      inverse_rms = Tensor::empty({rows}, device);
      logits = Tensor::empty({batch, length, config.vocab_size}, device);
    }
    bytes = inverse_rms.bytes() + logits.bytes();
    for (const Tensor& h : hidden) bytes += h.bytes();
    for (const LayerActivations& layer : layers) bytes += layer.bytes();
  }

  int64_t batch;
  int64_t length;
  std::vector<int32_t> tokens;  // [N], if the stage embeds
  std::vector<Tensor> hidden;   // [N, C] each: input of every layer, output of the last
  std::vector<LayerActivations> layers;
  Tensor inverse_rms;  // [N], of the final norm
  Tensor logits;       // [B, T, V]
  size_t bytes = 0;
};

}  // namespace

struct LlamaStage::Impl {
  Impl(const LlamaConfig& c, const StageSpan& s, Device d, uint64_t seed)
      : config((c.validate(), c)),
        span((check(c, s), s)),
        device(d),
        weights(c, s, d, seed),
        rope_angles(rope_table(c.context, c.head_dim(), c.rope_theta)) {}

  static void check(const LlamaConfig& c, const StageSpan& s) {
    require(0 <= s.first_layer && s.first_layer <= s.last_layer && s.last_layer <= c.layers,
            "stage: layers [{}, {}) of a model of {} layers", s.first_layer, s.last_layer,
            c.layers);
  }

  InFlight& begin(int microbatch, int64_t batch, int64_t length) {
    require(batch >= 0 && length >= 1 && length <= config.context,
            "microbatch {}: {} sequences of {} tokens; the model's context is {}", microbatch,
            batch, length, config.context);
    require(!in_flight.contains(microbatch),
            "forward of microbatch {}, which is in flight: its backward has not been called",
            microbatch);
    auto slot = std::find_if(idle.begin(), idle.end(), [&](const auto& s) {
      return s->batch == batch && s->length == length;
    });
    std::unique_ptr<InFlight> taken;
    if (slot != idle.end()) {
      taken = std::move(*slot);
      idle.erase(slot);
    } else {
      taken = std::make_unique<InFlight>(config, span, batch, length, device);
    }
    if (!scratch || scratch_rows != batch * length) {
      scratch.emplace(config, batch, length, device);
      scratch_rows = batch * length;
    }
    active_bytes += taken->bytes;
    peak_bytes = std::max(peak_bytes, active_bytes);
    return *(in_flight[microbatch] = std::move(taken));
  }

  std::unique_ptr<InFlight> end(int microbatch, const char* what) {
    const auto entry = in_flight.find(microbatch);
    require(entry != in_flight.end(),
            "{} of microbatch {}, which is not in flight: its forward comes first", what,
            microbatch);
    std::unique_ptr<InFlight> state = std::move(entry->second);
    in_flight.erase(entry);
    active_bytes -= state->bytes;
    return state;
  }

  void recycle(std::unique_ptr<InFlight> state) {
    // Kept for the next microbatch of this shape; other shapes are let go.
    std::erase_if(idle, [&](const auto& s) {
      return s->batch != state->batch || s->length != state->length;
    });
    idle.push_back(std::move(state));
  }

  /// Layers and head, from state.hidden[0] on.
  Tensor forward(InFlight& state) {
    const LayerShape shape{config, state.batch, state.length};
    for (size_t l = 0; l < weights.layers.size(); ++l)
      layer_forward(shape, weights.layers[l], rope_angles, state.hidden[l], state.layers[l],
                    *scratch, state.hidden[l + 1]);
    if (!span.has_head) return state.hidden.back().view({state.batch, state.length, config.dim});
    rmsnorm_forward(state.hidden.back(), weights.norm.value, config.norm_eps, scratch->normed,
                    state.inverse_rms);
    linear_forward(scratch->normed, weights.head.value, state.logits);
    return state.logits;
  }

  /// Gradient of the head's input from that of the logits.
  void head_backward(const InFlight& state, const Tensor& logits_gradient, const Tensor& gradient) {
    rmsnorm_apply(state.hidden.back(), weights.norm.value, state.inverse_rms, scratch->normed);
    linear_backward_weight(logits_gradient, scratch->normed, weights.head.gradient);
    linear_backward_input(logits_gradient, weights.head.value, scratch->normed_gradient);
    gradient.fill(0.0F);
    rmsnorm_backward(scratch->normed_gradient, state.hidden.back(), weights.norm.value,
                     state.inverse_rms, gradient, weights.norm.gradient);
  }

  Tensor backward(InFlight& state, const Tensor& output_gradient) {
    const int64_t rows = state.batch * state.length;
    const Shape expected = {state.batch, state.length,
                            span.has_head ? config.vocab_size : config.dim};
    require(output_gradient.defined() && output_gradient.shape() == expected,
            "backward: a gradient of shape {} for an output of shape {}",
            to_string(output_gradient.shape()), to_string(expected));
    // Not part of the microbatch: it may be on its way to another rank when the next one starts.
    const Tensor gradient = Tensor::empty({rows, config.dim}, device);
    if (span.has_head)
      head_backward(state, output_gradient, gradient);
    else
      gradient.copy_from(output_gradient.view({rows, config.dim}));

    const LayerShape shape{config, state.batch, state.length};
    for (size_t l = weights.layers.size(); l-- > 0;)
      layer_backward(shape, weights.layers[l], rope_angles, state.hidden[l], state.layers[l],
                     *scratch, gradient);
    if (!span.embeds) return gradient.view({state.batch, state.length, config.dim});
    embedding_backward(state.tokens, gradient, weights.embedding.gradient);
    return {};
  }

  LlamaConfig config;
  StageSpan span;
  Device device;
  Weights weights;
  Tensor rope_angles;
  std::map<int, std::unique_ptr<InFlight>> in_flight;
  std::vector<std::unique_ptr<InFlight>> idle;
  std::optional<LayerScratch> scratch;
  int64_t scratch_rows = 0;
  size_t active_bytes = 0;
  size_t peak_bytes = 0;
};

LlamaStage::LlamaStage(const LlamaConfig& config, const StageSpan& span, Device device,
                       uint64_t seed)
    : impl_(std::make_unique<Impl>(config, span, device, seed)) {}
LlamaStage::~LlamaStage() = default;
LlamaStage::LlamaStage(LlamaStage&&) noexcept = default;
LlamaStage& LlamaStage::operator=(LlamaStage&&) noexcept = default;

const LlamaConfig& LlamaStage::config() const { return impl_->config; }
const StageSpan& LlamaStage::span() const { return impl_->span; }

Tensor LlamaStage::forward(const TokenBatch& tokens, int microbatch) {
  require(impl_->span.embeds, "forward of tokens on a stage that does not embed");
  require(static_cast<int64_t>(tokens.tokens.size()) == tokens.batch * tokens.length,
          "a batch of {} sequences of {} tokens holds {} tokens", tokens.batch, tokens.length,
          tokens.tokens.size());
  for (int32_t token : tokens.tokens)
    require(token >= kPadding && token < impl_->config.vocab_size,
            "token {} is not in the model's vocabulary of {}: does the tokenizer belong to it?",
            token, impl_->config.vocab_size);
  InFlight& state = impl_->begin(microbatch, tokens.batch, tokens.length);
  state.tokens = tokens.tokens;
  embedding_forward(state.tokens, impl_->weights.embedding.value, state.hidden[0]);
  return impl_->forward(state);
}

Tensor LlamaStage::forward(const Tensor& hidden, int microbatch) {
  require(!impl_->span.embeds, "forward of hidden states on a stage that embeds tokens");
  require(hidden.dims() == 3 && hidden.size(-1) == impl_->config.dim,
          "forward: hidden states of shape {}, expected [B, T, {}]", to_string(hidden.shape()),
          impl_->config.dim);
  InFlight& state = impl_->begin(microbatch, hidden.size(0), hidden.size(1));
  state.hidden[0].copy_from(hidden.view(state.hidden[0].shape()));
  return impl_->forward(state);
}

Tensor LlamaStage::backward(const Tensor& output_gradient, int microbatch) {
  std::unique_ptr<InFlight> state = impl_->end(microbatch, "backward");
  Tensor gradient = impl_->backward(*state, output_gradient);
  impl_->recycle(std::move(state));
  return gradient;
}

void LlamaStage::discard(int microbatch) { impl_->recycle(impl_->end(microbatch, "discard")); }

Tensor LlamaStage::parameters() const { return impl_->weights.values; }

Tensor LlamaStage::gradients() const {
  impl_->weights.fold_tied_gradient();
  return impl_->weights.gradients;
}

void LlamaStage::zero_gradients() {
  impl_->weights.gradients.fill(0.0F);
  if (impl_->weights.tied_here) impl_->weights.head.gradient.fill(0.0F);
}

const std::vector<Parameter>& LlamaStage::named_parameters() const { return impl_->weights.named; }

int64_t LlamaStage::parameter_count() const {
  int64_t count = 0;
  for (const Parameter& parameter : impl_->weights.named) count += parameter.value.numel();
  return count;
}

size_t LlamaStage::activation_bytes() const { return impl_->active_bytes; }
size_t LlamaStage::peak_activation_bytes() const { return impl_->peak_bytes; }

// --- Telling a story: one sequence, keys and values of the past kept.

struct LlamaStage::KvCache {
  struct Layer {
    Tensor keys;    // [context, K]
    Tensor values;  // [context, K]
  };
  std::vector<Layer> layers;
  int64_t length = 0;
};

std::shared_ptr<LlamaStage::KvCache> LlamaStage::new_cache() const {
  const LlamaConfig& c = impl_->config;
  auto cache = std::make_shared<KvCache>();
  const Shape shape = {c.context, c.kv_heads * c.head_dim()};
  for (size_t l = 0; l < impl_->weights.layers.size(); ++l)
    cache->layers.push_back(
        {Tensor::empty(shape, impl_->device), Tensor::empty(shape, impl_->device)});
  return cache;
}

Tensor LlamaStage::decode(std::span<const int32_t> tokens, KvCache& cache) const {
  const LlamaConfig& c = impl_->config;
  require(impl_->span == StageSpan::whole(c), "decode needs the whole model, not one stage of it");
  const auto count = static_cast<int64_t>(tokens.size());
  const int64_t past = cache.length;
  const int64_t total = past + count;
  require(count >= 1 && total <= c.context, "{} tokens after {} do not fit the context of {}",
          count, past, c.context);

  const int64_t q_width = c.heads * c.head_dim();
  const int64_t k_width = c.kv_heads * c.head_dim();
  const Tensor x = Tensor::empty({count, c.dim});
  const Tensor normed = Tensor::empty({count, c.dim});
  const Tensor inverse_rms = Tensor::empty({count});
  const Tensor qkv = Tensor::empty({count, q_width + 2 * k_width});
  const Tensor attention = Tensor::empty({count, q_width});
  const Tensor logsumexp = Tensor::empty({c.heads, count});
  const Tensor gate_up = Tensor::empty({count, 2 * c.hidden_dim});
  const Tensor hidden = Tensor::empty({count, c.hidden_dim});
  const AttentionShape shape{.batch = 1,
                             .queries = count,
                             .keys = total,
                             .heads = c.heads,
                             .kv_heads = c.kv_heads,
                             .head_dim = c.head_dim()};

  embedding_forward(tokens, impl_->weights.embedding.value, x);
  for (size_t l = 0; l < impl_->weights.layers.size(); ++l) {
    const LayerWeights& w = impl_->weights.layers[l];
    const KvCache::Layer& kv = cache.layers[l];
    rmsnorm_forward(x, w.attention_norm.value, c.norm_eps, normed, inverse_rms);
    linear_forward(normed, w.qkv.value, qkv);
    rope(qkv.columns(0, q_width + k_width), impl_->rope_angles, count, past, Rotation::kForward);
    kv.keys.rows(past, total).copy_from(qkv.columns(q_width, q_width + k_width));
    kv.values.rows(past, total).copy_from(qkv.columns(q_width + k_width, q_width + 2 * k_width));
    attention_forward(shape, qkv.columns(0, q_width), kv.keys.rows(0, total),
                      kv.values.rows(0, total), attention, logsumexp);
    linear_forward(attention, w.attention_out.value, x, /*accumulate=*/true);

    rmsnorm_forward(x, w.mlp_norm.value, c.norm_eps, normed, inverse_rms);
    linear_forward(normed, w.gate_up.value, gate_up);
    swiglu_forward(gate_up, hidden);
    linear_forward(hidden, w.down.value, x, /*accumulate=*/true);
  }
  cache.length = total;

  const Tensor last = normed.rows(count - 1, count);
  rmsnorm_forward(x.rows(count - 1, count), impl_->weights.norm.value, c.norm_eps, last,
                  inverse_rms.rows(0, 1));
  Tensor logits = Tensor::empty({1, c.vocab_size});
  linear_forward(last, impl_->weights.head.value, logits);
  return logits.view({c.vocab_size});
}

}  // namespace lab
