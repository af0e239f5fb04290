#include "common/comm/combine.h"

#include <algorithm>

namespace lab {
namespace {

template <typename Function>
void combine_spans(std::span<float> into, std::span<const float> from, Function function) {
#pragma omp simd
  for (size_t i = 0; i < into.size(); ++i) into[i] = function(into[i], from[i]);
}

}  // namespace

void combine(const ProcessGroup& group, const Tensor& into, const Tensor& from, ReduceOp op) {
  require(into.numel() == from.numel(), "combine: {} elements and {}: they must be equally many",
          into.numel(), from.numel());
  const ComputeScope scope(group.recorder(), OpKind::kAdd, -1);
  const std::span<float> target = into.values();
  const std::span<const float> source = from.values();
  switch (op) {
    case ReduceOp::kSum:
      combine_spans(target, source, [](float a, float b) { return a + b; });
      break;
    case ReduceOp::kMin:
      combine_spans(target, source, [](float a, float b) { return b < a ? b : a; });
      break;
    case ReduceOp::kMax:
      combine_spans(target, source, [](float a, float b) { return b > a ? b : a; });
      break;
  }
  if (const CostModel* costs = group.costs())
    group.advance_clock(costs->gamma * static_cast<double>(into.numel()));
}

}  // namespace lab
