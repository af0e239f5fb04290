// A double as a message: tensors hold floats.
#pragma once

#include <cstring>

#include "common/tensor/tensor.h"

namespace lab {

/// The bits of a double as two floats, [2].
inline Tensor as_tensor(double number) {
  Tensor tensor = Tensor::empty({2});
  std::memcpy(tensor.data(), &number, sizeof number);
  return tensor;
}

/// The double whose bits begin at `floats`.
inline double as_double(const float* floats) {
  double number = 0.0;
  std::memcpy(&number, floats, sizeof number);
  return number;
}

}  // namespace lab
