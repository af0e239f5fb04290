// Generating text: one sequence, token by token, keeping the keys and values of earlier tokens.
#include <algorithm>

#include "common/error.h"
#include "common/model/llama_stage.h"
#include "common/model/llama_stage_impl.h"
#include "common/ops/ops.h"
#include "common/tensor/device_tokens.h"

namespace lab {

struct LlamaStage::KvCache {
  struct Layer {
    Tensor keys;    // [room, K]
    Tensor values;  // [room, K]
  };
  std::vector<Layer> layers;
  int64_t length = 0;
  int64_t room = 0;  // tokens; grows, since a context may be far longer than a story

  /// Makes room for `total` tokens of keys and values that are `width` wide.
  void grow(int64_t total, int64_t context, int64_t width, Device device) {
    if (total <= room) return;
    room = std::min(context, std::max({total, 2 * room, kLeastRoom}));
    const auto enlarge = [&](Tensor& tensor) {
      const Tensor larger = Tensor::empty({room, width}, device);
      if (length > 0) larger.rows(0, length).copy_from(tensor.rows(0, length));
      tensor = larger;
    };
    for (Layer& layer : layers) {
      enlarge(layer.keys);
      enlarge(layer.values);
    }
  }

  static constexpr int64_t kLeastRoom = 256;
};

std::shared_ptr<LlamaStage::KvCache> LlamaStage::new_cache() const {
  auto cache = std::make_shared<KvCache>();
  cache->layers.resize(impl_->weights.layers.size());
  return cache;
}

Tensor LlamaStage::decode(std::span<const int32_t> tokens, KvCache& cache) const {
  const LlamaConfig& c = impl_->config;
  require(impl_->span == StageSpan::whole(c) && impl_->tensor_slice.ranks == 1,
          "decode needs the whole model, not a stage or a slice of it");
  for (size_t p = 0; p < impl_->weights.part_count(); ++p) impl_->expect_bound(Pass::kForward, p);
  const auto count = static_cast<int64_t>(tokens.size());
  const int64_t past = cache.length;
  const int64_t total = past + count;
  require(count >= 1 && total <= c.context, "{} tokens after {} do not fit the context of {}",
          count, past, c.context);

  const int64_t q_width = c.heads * c.head_dim();
  const int64_t k_width = c.kv_heads * c.head_dim();
  const auto room = [&](Shape shape) { return Tensor::empty(std::move(shape), impl_->device); };
  const Tensor x = room({count, c.dim});
  const Tensor normed = room({count, c.dim});
  const Tensor inverse_rms = room({count});
  const Tensor qkv = room({count, q_width + 2 * k_width});
  const Tensor attention = room({count, q_width});
  const Tensor logsumexp = room({c.heads, count});
  const Tensor gate_up = room({count, 2 * c.hidden_dim});
  const Tensor hidden = room({count, c.hidden_dim});
  const AttentionShape shape{.batch = 1,
                             .queries = count,
                             .keys = total,
                             .heads = c.heads,
                             .kv_heads = c.kv_heads,
                             .head_dim = c.head_dim()};

  check_tokens(tokens, c);
  cache.grow(total, c.context, k_width, impl_->device);
  DeviceTokens on_device(impl_->device);
  on_device.assign(tokens);
  embedding_forward(on_device.tokens(), impl_->weights.embedding.value, x);
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
  const Tensor logits = room({1, c.vocab_size});
  linear_forward(last, impl_->weights.head.value, logits);
  return logits.view({c.vocab_size});
}

}  // namespace lab
