// Bfloat16: the upper half of a float32.
#pragma once

#include <bit>
#include <cstdint>

namespace lab {

/// A sign, the 8 bits of exponent of a float32, and 7 bits of mantissa. Numbers are stored in it,
/// never computed with: it widens to float without loss, and a float that becomes one is rounded to
/// nearest, ties to even. Plain arithmetic without branches, so that compilers vectorise loops over
/// it.
class Bfloat16 {
 public:
  Bfloat16() = default;
  Bfloat16(float value) : bits_(rounded(value)) {}  // NOLINT(google-explicit-constructor)
  // Not left to the constructor: compilers do not vectorise loops that copy temporary objects.
  Bfloat16& operator=(float value) {
    bits_ = rounded(value);
    return *this;
  }
  operator float() const {  // NOLINT(google-explicit-constructor)
    return std::bit_cast<float>(static_cast<uint32_t>(bits_) << 16);
  }

 private:
  static uint16_t rounded(float value) {
    const auto bits = std::bit_cast<uint32_t>(value);
    const uint32_t nearest = (bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16;
    // Rounding may carry a NaN into an infinity; one more bit of mantissa keeps it.
    const uint32_t not_a_number = (bits >> 16) | 0x40U;
    return static_cast<uint16_t>(value == value ? nearest : not_a_number);
  }

  uint16_t bits_;
};

}  // namespace lab
