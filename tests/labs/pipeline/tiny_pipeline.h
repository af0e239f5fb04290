// The model of the pipeline labs' tests, and the part of it that each rank holds.
#pragma once

#include <cstdint>
#include <vector>

#include "common/model/llama_stage.h"
#include "common/tensor/parallel.h"

namespace pipeline_tests {

inline constexpr int64_t kVocab = 40;
inline constexpr int64_t kContext = 12;
inline constexpr int64_t kDim = 24;
inline constexpr int64_t kLayers = 6;

/// Large initial values, so that the gradients of all weights are well above rounding.
inline lab::LlamaConfig tiny_config() {
  return {.vocab_size = kVocab,
          .dim = kDim,
          .heads = 2,
          .kv_heads = 1,
          .layers = kLayers,
          .hidden_dim = 48,
          .context = kContext,
          .init_std = 0.3F};
}

/// `counts`: how many layers each stage has, together kLayers; doubles, since parcels carry those.
inline std::vector<lab::StageSpan> spans_of(const std::vector<double>& counts) {
  std::vector<lab::StageSpan> spans;
  int64_t first_layer = 0;
  for (size_t s = 0; s < counts.size(); ++s) {
    const int64_t last_layer = first_layer + static_cast<int64_t>(counts[s]);
    spans.push_back({first_layer, last_layer, s == 0, s + 1 == counts.size()});
    first_layer = last_layer;
  }
  return spans;
}

/// The weights are drawn by name: those of the stages are those of the whole model. One thread from
/// here on, since bits are promised for equal numbers of threads only.
inline lab::LlamaStage make_stage(const lab::StageSpan& span) {
  lab::set_thread_count(1);
  return {tiny_config(), span, lab::Device::kCpu, 7};
}

inline lab::LlamaStage make_whole_model() {
  return make_stage(lab::StageSpan::whole(tiny_config()));
}

}  // namespace pipeline_tests
