#include "common/tools/plan/model_cost.h"

#include <algorithm>

#include "common/error.h"
#include "common/model/split.h"

namespace lab {
namespace {

int64_t qkv_width(const LlamaConfig& c) { return c.query_width() + 2 * c.key_width(); }

int64_t layer_kept(const LlamaConfig& c) {
  return 2 + qkv_width(c) + c.query_width() + c.heads + c.dim + 2 * c.hidden_dim;
}

/// Layers of the last stage that make the slowest stage fastest.
int64_t layers_of_last(int64_t layers, int64_t stages, double head) {
  int64_t best = layers;
  double best_cost = -1;
  for (int64_t last = 1; stages > 1 && last <= layers - (stages - 1); ++last) {
    const int64_t most_of_others = (layers - last + stages - 2) / (stages - 1);
    const double cost =
        std::max(static_cast<double>(most_of_others), static_cast<double>(last) + head);
    if (best_cost >= 0 && cost >= best_cost) continue;
    best = last;
    best_cost = cost;
  }
  return best;
}

}  // namespace

StageFlops stage_flops(const LlamaConfig& config, const StageSpan& span, int64_t length,
                       bool recompute) {
  const double layers = static_cast<double>(span.layers()) * layer_flops(config, length);
  const double forward = layers + (span.has_head ? head_flops(config) : 0.0);
  return {.forward = forward, .backward = 2 * forward + (recompute ? layers : 0.0)};
}

int64_t largest_part(const LlamaConfig& config) {
  const int64_t ends = config.vocab_size * config.dim + config.dim;
  return std::max(layer_parameters(config), ends);
}

int64_t kept_per_token(const LlamaConfig& config, const StageSpan& span, bool recompute) {
  const int64_t layers = span.layers();
  return (recompute ? 0 : layers * layer_kept(config)) + (layers + 1) * config.dim +
         (span.has_head ? 1 + config.vocab_size : 0);
}

int64_t scratch_per_token(const LlamaConfig& config, bool recompute) {
  return 3 * config.dim + config.hidden_dim + config.query_width() + qkv_width(config) +
         (recompute ? layer_kept(config) : 0);
}

std::vector<StageSpan> balanced_spans(const LlamaConfig& config, int stages, int64_t length) {
  require(stages >= 1 && stages <= config.layers, "{} stages of a model of {} layers", stages,
          config.layers);
  const int64_t last = layers_of_last(config.layers, stages, head_cost(config, length));
  std::vector<int64_t> counts;
  int64_t left = config.layers - last;
  for (int64_t others = stages - 1; others > 0; --others) {
    counts.push_back(left / others);
    left -= counts.back();
  }
  counts.push_back(last);
  return spans_of(config, counts);
}

}  // namespace lab
