// Every operation on inputs that hurt, as data: for the tests that compare the GPU with the CPU,
// and for those that run the same kernels in other orders.
#pragma once

#include <cstdint>
#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include "common/ops/ops.h"
#include "common/tensor/accelerator.h"
#include "common/tensor/tensor.h"
#include "tests/unit/numeric.h"

namespace lab::test {

/// An operation on given inputs.
struct OpCase {
  std::string name;  // letters, digits and underscores
  /// Makes the inputs, the same each time, and runs the operation on `device`. Returns everything
  /// that it wrote, with what lies beside it in memory.
  std::function<std::vector<Tensor>(Device device)> run;
  /// Of the GPU's results against the CPU's, relative to the largest element.
  double tolerance;
  Precision needs = Precision::kFloat32;  // what a GPU must support
};

/// How GoogleTest names a case in messages.
inline std::ostream& operator<<(std::ostream& out, const OpCase& op) { return out << op.name; }

std::vector<OpCase> linear_cases();
std::vector<OpCase> embedding_cases();
std::vector<OpCase> row_cases();  // RMSNorm, rope, SwiGLU
std::vector<OpCase> elementwise_cases();
std::vector<OpCase> attention_cases();
std::vector<OpCase> bfloat16_cases();

inline std::vector<OpCase> all_op_cases() {
  std::vector<OpCase> all;
  for (const auto& cases : {linear_cases(), embedding_cases(), row_cases(), elementwise_cases(),
                            attention_cases(), bfloat16_cases()})
    all.insert(all.end(), cases.begin(), cases.end());
  return all;
}

/// A matrix inside a wider one: `left` columns before it and `right` after it.
struct Inset {
  Inset(Device device, int64_t rows, int64_t columns, int64_t left, int64_t right, uint64_t seed)
      : all(random_tensor({rows, left + columns + right}, seed).to(device)),
        inner(all.columns(left, left + columns)) {}

  Tensor all;
  Tensor inner;
};

/// How a matrix is stored: contiguous, with gaps between rows that start at multiples of 16 bytes,
/// or with gaps and rows that start anywhere.
struct Placement {
  std::string name;
  int64_t left;
  int64_t right;
};
inline std::vector<Placement> placements() {
  return {{"dense", 0, 0}, {"aligned_gaps", 4, 8}, {"odd_gaps", 1, 2}};
}

/// Attention, forward and (with as many keys as queries) backward, of inputs of that size.
OpCase attention_case(const AttentionShape& shape, const Placement& place, float size = 2.0F,
                      double tolerance = 1e-5);

}  // namespace lab::test
