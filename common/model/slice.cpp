#include "common/model/slice.h"

#include "common/error.h"

namespace lab {

Range range_of(int64_t count, const TensorSlice& slice) {
  return {count * slice.rank / slice.ranks, count * (slice.rank + 1) / slice.ranks};
}

LlamaConfig slice_config(const LlamaConfig& whole, const TensorSlice& slice) {
  require(slice.ranks >= 1 && 0 <= slice.rank && slice.rank < slice.ranks,
          "slice {} of {} of a model", slice.rank, slice.ranks);
  LlamaConfig config = whole;
  if (slice.ranks == 1) return config;
  const auto divide = [&](const char* what, int64_t& count) {
    require(count % slice.ranks == 0, "model: {} {} cannot be divided equally among {} ranks",
            count, what, slice.ranks);
    count /= slice.ranks;
  };
  config.head_width = whole.head_dim();
  divide("heads", config.heads);
  divide("kv_heads", config.kv_heads);
  divide("channels of hidden_dim", config.hidden_dim);
  require(whole.vocab_size >= slice.ranks,
          "model: a vocabulary of {} cannot be divided among {} ranks", whole.vocab_size,
          slice.ranks);
  config.vocab_size = range_of(whole.vocab_size, slice).size();
  return config;
}

Cut cut_of(const std::string& name) {
  if (name.ends_with("norm.weight")) return Cut::kNone;
  if (name.ends_with("o_proj.weight") || name.ends_with("down_proj.weight")) return Cut::kColumns;
  return Cut::kRows;
}

Shape whole_shape(const std::string& name, const LlamaConfig& c) {
  const auto is = [&](const char* end) { return name.ends_with(end); };
  if (is("norm.weight")) return {c.dim};
  if (is("q_proj.weight")) return {c.query_width(), c.dim};
  if (is("k_proj.weight") || is("v_proj.weight")) return {c.key_width(), c.dim};
  if (is("o_proj.weight")) return {c.dim, c.query_width()};
  if (is("gate_proj.weight") || is("up_proj.weight")) return {c.hidden_dim, c.dim};
  if (is("down_proj.weight")) return {c.dim, c.hidden_dim};
  require(is("embed_tokens.weight") || is("lm_head.weight"), "no parameter is called {}", name);
  return {c.vocab_size, c.dim};
}

Tensor slice_of(const std::string& name, const Tensor& whole, const TensorSlice& slice) {
  const Cut cut = cut_of(name);
  if (cut == Cut::kNone) return whole;
  const Range range = range_of(cut == Cut::kRows ? whole.size(0) : whole.size(1), slice);
  return cut == Cut::kRows ? whole.rows(range.first, range.last)
                           : whole.columns(range.first, range.last);
}

}  // namespace lab
