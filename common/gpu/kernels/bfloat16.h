// Operands of bfloat16, for tensor cores.
#pragma once

#include <optional>

#include "common/gpu/cuda/context.h"
#include "common/gpu/kernels/matrix.h"
#include "common/tensor/tensor.h"

namespace lab::cuda {

/// A tensor in the form that tensor cores need: itself, or a copy rounded to bfloat16, whose memory
/// may be released as soon as the product has been launched.
class Bfloat16Operand {
 public:
  Bfloat16Operand(const Context& context, const Tensor& tensor);
  const Bfloat16Matrix& matrix() const { return matrix_; }

 private:
  std::optional<Scratch<__nv_bfloat16>> copy_;
  Bfloat16Matrix matrix_;
};

}  // namespace lab::cuda
