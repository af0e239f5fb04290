// Numbers that bfloat16 holds exactly.
#pragma once

#include <bit>
#include <cstdint>

#include "common/tensor/tensor.h"
#include "tests/unit/numeric.h"

namespace lab::test {

/// The largest error of rounding to bfloat16, relative to the number: half of the last of its 8
/// bits.
constexpr double kBfloat16Error = 0x1p-8;

/// To nearest, ties to even; for finite numbers.
inline float rounded_to_bfloat16(float x) {
  const auto bits = std::bit_cast<uint32_t>(x);
  const uint32_t up = 0x7fffU + ((bits >> 16) & 1U);
  return std::bit_cast<float>((bits + up) & 0xffff0000U);
}

/// float32 on the CPU.
inline Tensor rounded_random(Shape shape, uint64_t seed, float size = 1.0F) {
  Tensor tensor = random_tensor(std::move(shape), seed, size);
  for (float& x : tensor.values()) x = rounded_to_bfloat16(x);
  return tensor;
}

/// The same numbers: on a GPU in bfloat16, on the CPU in float32.
inline Tensor bfloat16_on(Device device, const Tensor& numbers) {
  if (device == Device::kCpu) return numbers;
  Tensor tensor = Tensor::empty(numbers.shape(), device, ElementType::kBfloat16);
  tensor.copy_from(numbers);
  return tensor;
}

}  // namespace lab::test
