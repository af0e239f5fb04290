// Cutting a model into stages: what a cut must be, and what the parts cost.
#pragma once

#include <cstdint>
#include <vector>

#include "common/model/config.h"

namespace lab {

/// What the head costs, in layers: the ratio of their multiplications per token in the forward
/// pass, for sequences of T = `length` tokens. Backward passes cost twice as much, of both. A
/// layer's matrices count in full, its attention as over T/2 earlier tokens on average.
double head_cost(const LlamaConfig& config, int64_t length);

/// Stages of `counts[s]` layers each; the first embeds, the last one has the head. Throws Error
/// unless the counts are positive and add up to the model's layers.
std::vector<StageSpan> spans_of(const LlamaConfig& config, const std::vector<int64_t>& counts);

/// Throws Error unless the spans, in this order, make up the whole model, with at least one layer
/// each: "stage 1 begins with layer 3, but stage 0 ends before layer 2".
void check_spans(const LlamaConfig& config, const std::vector<StageSpan>& spans);

}  // namespace lab
