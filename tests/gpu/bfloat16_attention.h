// Attention of bfloat16 on the GPU beside that of the CPU, which computes in float32 from the same
// rounded numbers.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/ops/ops.h"
#include "common/tensor/tensor.h"
#include "tests/gpu/op_cases.h"

namespace lab::test {

/// Where q, k and v, or their gradients, lie in their matrices, as the first of their columns; y
/// and dy as q.
struct AttentionColumns {
  AttentionColumns(const AttentionShape& shape, const Placement& place);

  int64_t q, q_end, k, v, v_end;
};

/// Inputs of attention on the CPU: q, k and v are columns of one matrix, as the model keeps them;
/// of two, where there are more keys than queries.
struct AttentionInputs {
  AttentionInputs(const AttentionShape& shape, Placement place, float size = 2.0F);

  AttentionShape shape;
  Placement place;
  Tensor queries, keys, dy;  // whole matrices
};

/// Whole matrices, on the CPU. Those of the gradients begin as random numbers, so that what lies
/// beside them can be seen to stay; undefined where there are more keys than queries.
struct AttentionResults {
  Tensor y, logsumexp, gradients;

  std::vector<Tensor> all() const;
};

AttentionResults attention_on_gpu(const AttentionInputs& in);
/// Gradients are computed from y and logsumexp of `given`, so that its errors in them do not count
/// twice.
AttentionResults attention_on_cpu(const AttentionInputs& in, const AttentionResults& given);

/// "B1_Tq5_Tk5_H2_K2_D6_dense".
std::string name_of(const AttentionShape& shape, const Placement& place);

}  // namespace lab::test
