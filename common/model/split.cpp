#include "common/model/split.h"

#include "common/error.h"

namespace lab {

double layer_flops(const LlamaConfig& config, int64_t length) {
  const double attention = static_cast<double>(config.query_width()) * static_cast<double>(length);
  return 2 * (static_cast<double>(layer_matrices(config)) + attention);
}

double head_flops(const LlamaConfig& config) {
  return 2 * static_cast<double>(config.vocab_size) * static_cast<double>(config.dim);
}

double head_cost(const LlamaConfig& config, int64_t length) {
  return head_flops(config) / layer_flops(config, length);
}

std::vector<StageSpan> spans_of(const LlamaConfig& config, const std::vector<int64_t>& counts) {
  std::vector<StageSpan> spans;
  int64_t first = 0;
  for (size_t s = 0; s < counts.size(); ++s) {
    spans.push_back({first, first + counts[s], s == 0, s + 1 == counts.size()});
    first += counts[s];
  }
  check_spans(config, spans);
  return spans;
}

void check_spans(const LlamaConfig& config, const std::vector<StageSpan>& spans) {
  require(!spans.empty(), "a model is split into at least one stage");
  int64_t next = 0;
  for (size_t s = 0; s < spans.size(); ++s) {
    const StageSpan& span = spans[s];
    require(span.first_layer == next, "stage {} begins with layer {}, but {} layers lie before it",
            s, span.first_layer, next);
    require(span.last_layer > span.first_layer, "stage {} has no layers: [{}, {})", s,
            span.first_layer, span.last_layer);
    require(span.embeds == (s == 0), "stage {} {}: the first stage embeds, no other does", s,
            span.embeds ? "embeds" : "does not embed");
    require(span.has_head == (s + 1 == spans.size()),
            "stage {} {} the head: the last stage has it, no other does", s,
            span.has_head ? "has" : "lacks");
    next = span.last_layer;
  }
  require(next == config.layers, "{} stages hold {} layers; the model has {}", spans.size(), next,
          config.layers);
}

}  // namespace lab
