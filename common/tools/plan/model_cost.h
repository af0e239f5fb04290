// What a part of the model costs: multiplications, weights, and values kept for the backward pass.
#pragma once

#include <cstdint>
#include <vector>

#include "common/model/config.h"

namespace lab {

/// What a stage computes per token: forward, and backward, which takes two matrix products for each
/// of the forward's. `recompute`: the backward pass runs the layers' forward again, from the
/// layers' inputs (Chen et al., "Training deep nets with sublinear memory cost" (2016)).
struct StageFlops {
  double forward = 0;
  double backward = 0;
};
StageFlops stage_flops(const LlamaConfig& config, const StageSpan& span, int64_t length,
                       bool recompute);

/// Weights of the largest part of a model that is held in shards: a layer, or one of its ends.
int64_t largest_part(const LlamaConfig& config);

/// Numbers that a stage keeps per token of a microbatch in flight; as LlamaStage does, so that
/// tokens * 4 bytes * this = LlamaStage::activation_bytes(). From common/model/layer.h, with
/// Q = heads * D and K = kv_heads * D:
///   a layer   2 (inverse norms) + (Q + 2K) + Q (attention) + heads (logsumexp) + C (middle) + 2H
///   a stage   (layers + 1) C (inputs of the layers, output of the last)
///   the head  1 (inverse norm) + V (logits, which become their gradient)
/// `recompute`: only the inputs of the layers.
int64_t kept_per_token(const LlamaConfig& config, const StageSpan& span, bool recompute);

/// Numbers per token of one microbatch that a stage needs while it computes, however many are in
/// flight: LayerScratch, 3C + H + Q + (Q + 2K), where 3C stands for two norms and the gradient
/// passed on. `recompute`: also the values of the layer being recomputed.
int64_t scratch_per_token(const LlamaConfig& config, bool recompute);

/// Stages that are as equal as whole layers allow when the head counts as `head_cost` layers: the
/// last stage has the number of layers that makes the slowest stage fastest, the others divide the
/// rest, and later ones get the remainder (as in lab 04; the first stage has the most microbatches
/// in flight). Throws Error unless 1 <= stages <= layers.
std::vector<StageSpan> balanced_spans(const LlamaConfig& config, int stages, int64_t length);

}  // namespace lab
