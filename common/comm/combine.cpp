#include "common/comm/combine.h"

namespace lab {
namespace {

template <typename Combine>
void combine_all(std::span<float> result, const float* a, const float* b, Combine combine) {
#pragma omp simd
  for (size_t i = 0; i < result.size(); ++i) result[i] = combine(a[i], b[i]);
}

}  // namespace

void combine(ReduceOp op, std::span<float> result, const float* a, const float* b) {
  switch (op) {
    case ReduceOp::kSum:
      return combine_all(result, a, b, [](float x, float y) { return x + y; });
    case ReduceOp::kMin:
      return combine_all(result, a, b, [](float x, float y) { return y < x ? y : x; });
    case ReduceOp::kMax:
      return combine_all(result, a, b, [](float x, float y) { return y > x ? y : x; });
  }
}

void combine(const ProcessGroup& group, const Tensor& into, const Tensor& from, ReduceOp op) {
  require(into.numel() == from.numel(), "combine: {} and {} elements, but both counts must match",
          into.numel(), from.numel());
  const ComputeScope scope(group.recorder(), OpKind::kAdd, -1);
  combine(op, into.values(), into.data(), from.data());
  if (const CostModel* costs = group.costs())
    group.advance_clock(costs->gamma * static_cast<double>(into.numel()));
}

}  // namespace lab
