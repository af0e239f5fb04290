// Cutting a model into stages: what a cut must be, and what the parts cost.
#pragma once

#include <cstdint>
#include <vector>

#include "common/model/config.h"

namespace lab {

/// Floating-point operations of a layer's forward pass per token, in sequences of T = `length`
/// tokens. Two for each of a matrix's weights (a multiplication and an addition); attention takes
/// 2 * 2 * Q * T/2, since a token sees T/2 earlier ones on average (scores, and sums of values).
/// Norms, SwiGLU and softmax are left out. Kaplan et al., "Scaling laws" (2020), section 2.1.
double layer_flops(const LlamaConfig& config, int64_t length);

/// The same for the head: 2 V C.
double head_flops(const LlamaConfig& config);

/// What the head costs, in layers: the ratio of these. Backward passes cost twice as much, of both.
double head_cost(const LlamaConfig& config, int64_t length);

/// Stages of `counts[s]` layers each; the first embeds, the last one has the head. Throws Error
/// unless the counts are positive and add up to the model's layers.
std::vector<StageSpan> spans_of(const LlamaConfig& config, const std::vector<int64_t>& counts);

/// Throws Error unless the spans, in this order, make up the whole model, with at least one layer
/// each: "stage 1 begins with layer 3, but stage 0 ends before layer 2".
void check_spans(const LlamaConfig& config, const std::vector<StageSpan>& spans);

}  // namespace lab
