// Generating text: one sequence, token by token, keeping the keys and values of earlier tokens.
#include <algorithm>

#include "common/error.h"
#include "common/model/layer.h"
#include "common/model/llama_stage.h"
#include "common/model/llama_stage_impl.h"
#include "common/ops/ops.h"
#include "common/tensor/device_tokens.h"

namespace lab {

struct LlamaStage::KvCache {
  std::vector<KeysAndValues> layers;
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
    for (KeysAndValues& layer : layers) {
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

  check_tokens(tokens, c);
  cache.grow(total, c.context, c.key_width(), impl_->device);
  const LayerShape shape{.config = c, .batch = 1, .length = count, .past = past};
  const LayerMemory memory{.device = impl_->device};
  LayerActivations kept(c, 1, count, memory);
  LayerScratch scratch(c, 1, count, memory);
  const Tensor x = Tensor::empty({count, c.dim}, impl_->device);
  DeviceTokens on_device(impl_->device);
  on_device.assign(tokens);
  embedding_forward(on_device.tokens(), impl_->weights.embedding.value, x);
  for (size_t l = 0; l < impl_->weights.layers.size(); ++l)
    layer_forward(shape, impl_->weights.layers[l], impl_->rope_angles, x, kept, scratch, x,
                  &cache.layers[l]);
  cache.length = total;

  const Tensor last = scratch.normed.rows(count - 1, count);
  rmsnorm_forward(x.rows(count - 1, count), impl_->weights.norm.value, c.norm_eps, last,
                  kept.mlp_inverse_rms.rows(0, 1));
  const Tensor logits = Tensor::empty({1, c.vocab_size}, impl_->device);
  linear_forward(last, impl_->weights.head.value, logits);
  return logits.view({c.vocab_size});
}

}  // namespace lab
