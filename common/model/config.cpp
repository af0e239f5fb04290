#include "common/model/config.h"

#include "common/error.h"

namespace lab {

void LlamaConfig::validate() const {
  struct Limit {
    const char* name;
    int64_t value;
    int64_t largest;
  };
  for (const Limit& limit : {Limit{"vocab_size", vocab_size, int64_t{1} << 24},
                             {"dim", dim, 1 << 16},
                             {"heads", heads, 1 << 12},
                             {"kv_heads", kv_heads, 1 << 12},
                             {"layers", layers, 1 << 12},
                             {"hidden_dim", hidden_dim, 1 << 18},
                             {"context", context, 1 << 20}})
    require(limit.value >= 1 && limit.value <= limit.largest,
            "model: {} is {}, it must lie between 1 and {}", limit.name, limit.value,
            limit.largest);
  require(head_width > 0 || dim % heads == 0, "model: {} heads do not divide dim {}", heads, dim);
  require(heads % kv_heads == 0, "model: {} kv_heads do not divide {} heads", kv_heads, heads);
  require(head_dim() % 2 == 0,
          "model: dim {} over {} heads gives heads of width {}; rotary embedding needs an even one",
          dim, heads, head_dim());
  require(rope_theta > 0.0F && norm_eps > 0.0F && norm_eps < 1.0F && init_std >= 0.0F,
          "model: rope_theta {}, norm_eps {} or init_std {} is out of range", rope_theta, norm_eps,
          init_std);
  require(embedding_scale > 0.0F && embedding_scale <= 1e3F,
          "model: embedding_scale is {}, it must be positive and at most 1000", embedding_scale);
  require(!tied_head || embedding_scale == 1.0F,
          "model: embedding_scale is {}, with a tied head it must be 1", embedding_scale);
}

int64_t parameter_count(const LlamaConfig& config) {
  const int64_t q_width = config.heads * config.head_dim();
  const int64_t kv_width = config.kv_heads * config.head_dim();
  const int64_t layer = config.dim * (2 * q_width + 2 * kv_width + 3 * config.hidden_dim + 2);
  const int64_t embeddings = config.tied_head ? 1 : 2;
  return embeddings * config.vocab_size * config.dim + config.layers * layer + config.dim;
}

}  // namespace lab
