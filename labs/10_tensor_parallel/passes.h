// Lab 10 · a stage whose layers are divided, with your functions in place of those for whole
// layers. Given.
#pragma once

#include <memory>

#include "common/model/stage_passes.h"
#include "labs/10_tensor_parallel/tensor_parallel.h"

namespace lab10 {

/// The passes of one slice, over the group of all slices.
class Passes : public lab::StagePasses {
 public:
  /// `ranks` must outlive it, and stay where it is.
  Passes(const lab::Range& vocabulary, lab::ProcessGroup& ranks)
      : vocabulary_(vocabulary), ranks_(ranks) {}

  void embedding_forward(std::span<const int32_t> tokens, const lab::Weight& table,
                         const lab::Tensor& y) override {
    embed_forward(tokens, table, vocabulary_, y, ranks_);
  }
  void embedding_backward(std::span<const int32_t> tokens, const lab::Tensor& dy,
                          const lab::Weight& table) override {
    embed_backward(tokens, dy, table, vocabulary_);
  }
  void layer_forward(const lab::LayerShape& shape, const lab::LayerWeights& weights,
                     const lab::Tensor& rope_angles, const lab::Tensor& input,
                     lab::LayerActivations& kept, const lab::Tensor& output) override {
    attention_forward(shape, weights, rope_angles, input, kept, ranks_);
    mlp_forward(shape, weights, kept, output, ranks_);
  }
  void layer_backward(const lab::LayerShape& shape, const lab::LayerWeights& weights,
                      const lab::Tensor& rope_angles, const lab::Tensor& input,
                      lab::LayerActivations& kept, const lab::Tensor& gradient) override {
    mlp_backward(shape, weights, kept, gradient, ranks_);
    attention_backward(shape, weights, rope_angles, input, kept, gradient, ranks_);
  }
  // The head is a linear layer whose output is divided: nobody gathers the logits.
  void head_forward(const lab::Tensor& x, const lab::Weight& head,
                    const lab::Tensor& logits) override {
    column_linear_forward(by_position(x), head, by_position(logits), ranks_);
  }
  void head_backward(const lab::Tensor& dlogits, const lab::Tensor& x, const lab::Weight& head,
                     const lab::Tensor& dx) override {
    column_linear_backward(by_position(dlogits), by_position(x), head, by_position(dx), ranks_);
  }

 private:
  /// [B, T, ...] as [N, ...], N = B * T, which is what task 2 is given.
  static lab::Tensor by_position(const lab::Tensor& tensor) {
    return tensor.view({tensor.numel() / tensor.size(-1), tensor.size(-1)});
  }

  lab::Range vocabulary_;
  lab::ProcessGroup& ranks_;
};

/// This rank's tokens of the vocabulary.
inline lab::Range vocabulary_of(const lab::LlamaConfig& config, const lab::ProcessGroup& ranks) {
  return lab::range_of(config.vocab_size, {.rank = ranks.rank(), .ranks = ranks.size()});
}

/// The slice of a stage that this rank of `ranks` holds. `ranks` must outlive it, and stay where it
/// is.
inline lab::LlamaStage make_stage(const lab::LlamaConfig& config, const lab::StageSpan& span,
                                  lab::ProcessGroup& ranks, uint64_t seed) {
  return {config,
          span,
          {.rank = ranks.rank(), .ranks = ranks.size()},
          std::make_shared<Passes>(vocabulary_of(config, ranks), ranks),
          seed};
}

}  // namespace lab10
