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

int64_t layer_matrices(const LlamaConfig& c) {
  return c.dim * (2 * c.query_width() + 2 * c.key_width() + 3 * c.hidden_dim);
}

int64_t layer_parameters(const LlamaConfig& c) { return layer_matrices(c) + 2 * c.dim; }

int64_t parameter_count(const LlamaConfig& config, const StageSpan& span) {
  const int64_t table = config.vocab_size * config.dim;
  const bool shared = config.tied_head && span.embeds;
  return (span.embeds ? table : 0) + span.layers() * layer_parameters(config) +
         (span.has_head ? config.dim + (shared ? 0 : table) : 0);
}

int64_t parameter_count(const LlamaConfig& config) {
  return parameter_count(config, StageSpan::whole(config));
}

}  // namespace lab
