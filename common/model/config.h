// LlamaConfig: the sizes that define a model. StageSpan and TensorSlice: which part of it one rank
// holds.
#pragma once

#include <cstdint>

namespace lab {

/// Sizes of a LLaMA as Hugging Face's LlamaConfig names them. The defaults are the model of this
/// workbook: about 10 million parameters with the shipped vocabulary of 4,096.
struct LlamaConfig {
  int64_t vocab_size = 4096;
  int64_t dim = 288;          // C, hidden_size
  int64_t heads = 6;          // num_attention_heads
  int64_t kv_heads = 6;       // num_key_value_heads; fewer than heads: grouped-query attention
  int64_t layers = 6;         // num_hidden_layers
  int64_t hidden_dim = 1152;  // intermediate_size, of SwiGLU
  int64_t context = 256;      // max_position_embeddings, the longest T
  float rope_theta = 10000.0F;
  float norm_eps = 1e-6F;
  float init_std = 0.02F;        // initializer_range
  float embedding_scale = 1.0F;  // first values of the embedding, relative to init_std
  bool tied_head = false;        // tie_word_embeddings
  int64_t head_width = 0;        // D, of a slice of a model (TensorSlice); 0: dim / heads

  int64_t head_dim() const { return head_width > 0 ? head_width : dim / heads; }
  int64_t query_width() const { return heads * head_dim(); }   // Q, of all heads together
  int64_t key_width() const { return kv_heads * head_dim(); }  // K, likewise; also that of values

  /// Throws Error naming the first impossible size (not positive, heads do not divide dim, kv_heads
  /// do not divide heads, odd head_dim, absurdly large), or an embedding_scale other than 1 with a
  /// tied head, whose logits would start too large by that factor.
  void validate() const;

  bool operator==(const LlamaConfig&) const = default;
};

/// A contiguous part of the model: layers [first_layer, last_layer), preceded by the embedding if
/// `embeds`, followed by the final norm and the head if `has_head`. The whole model is the span
/// with all of it.
struct StageSpan {
  int64_t first_layer = 0;
  int64_t last_layer = 0;
  bool embeds = false;
  bool has_head = false;

  static StageSpan whole(const LlamaConfig& config) { return {0, config.layers, true, true}; }

  int64_t layers() const { return last_layer - first_layer; }

  bool operator==(const StageSpan&) const = default;
};

/// Number of weights of the matrices of a layer.
int64_t layer_matrices(const LlamaConfig& config);

/// Number of weights of a layer: its matrices and its two norms.
int64_t layer_parameters(const LlamaConfig& config);

/// Number of weights of a stage, as LlamaStage::parameter_count(). A tied head counts once where
/// the stage also embeds.
int64_t parameter_count(const LlamaConfig& config, const StageSpan& span);

/// The same of the whole model.
int64_t parameter_count(const LlamaConfig& config);

/// Which part of each of these layers: `ranks` ranks divide the matrices among them
/// (common/model/slice.h). One rank: all of it.
struct TensorSlice {
  int rank = 0;
  int ranks = 1;

  bool operator==(const TensorSlice&) const = default;
};

}  // namespace lab
