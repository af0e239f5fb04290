// combine: the addition in an all-reduce.
#pragma once

#include <span>

#include "common/comm/process_group.h"

namespace lab {

/// result[i] = a[i] op b[i]; `result` may be one of the two.
void combine(ReduceOp op, std::span<float> result, const float* a, const float* b);

/// into[i] = into[i] + from[i], or the smaller or larger of the two, for two tensors in host memory
/// with equally many elements. The flight record shows it as an addition; in a simulation with a
/// cost model it takes gamma per element. Throws Error if the numbers of elements differ.
void combine(const ProcessGroup& group, const Tensor& into, const Tensor& from, ReduceOp op);

}  // namespace lab
