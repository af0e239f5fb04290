// Stands in for CUDA's header: 16-bit brain floats, which are floats without their lower half.
#pragma once

#include <bit>
#include <cstdint>

#include "emulated/inline.h"
#include "emulated/vector_types.h"

namespace lab::emulation {

/// The upper half of a float, rounded to nearest, ties to even; NaN stays NaN.
LAB_EMULATION_INLINE constexpr unsigned short bfloat16_bits(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return 0x7fff;
  return static_cast<unsigned short>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

}  // namespace lab::emulation

struct __nv_bfloat16 {
  __nv_bfloat16() = default;
  LAB_EMULATION_INLINE constexpr __nv_bfloat16(float value)
      : bits(lab::emulation::bfloat16_bits(value)) {}
  LAB_EMULATION_INLINE constexpr operator float() const {
    return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
  }

  unsigned short bits;
};

struct alignas(4) __nv_bfloat162 {
  __nv_bfloat16 x;
  __nv_bfloat16 y;
};

/// As on a GPU, sums and products of two brain floats are rounded to one.
LAB_EMULATION_INLINE __nv_bfloat16 operator+(__nv_bfloat16 a, __nv_bfloat16 b) {
  return {float{a} + float{b}};
}
LAB_EMULATION_INLINE __nv_bfloat16 operator-(__nv_bfloat16 a, __nv_bfloat16 b) {
  return {float{a} - float{b}};
}
LAB_EMULATION_INLINE __nv_bfloat16 operator*(__nv_bfloat16 a, __nv_bfloat16 b) {
  return {float{a} * float{b}};
}
LAB_EMULATION_INLINE __nv_bfloat16 operator/(__nv_bfloat16 a, __nv_bfloat16 b) {
  return {float{a} / float{b}};
}

using nv_bfloat16 = __nv_bfloat16;
using nv_bfloat162 = __nv_bfloat162;

LAB_EMULATION_INLINE __nv_bfloat16 __float2bfloat16(float value) { return {value}; }
LAB_EMULATION_INLINE __nv_bfloat16 __float2bfloat16_rn(float value) { return {value}; }
LAB_EMULATION_INLINE float __bfloat162float(__nv_bfloat16 value) { return value; }
LAB_EMULATION_INLINE __nv_bfloat162 __floats2bfloat162_rn(float x, float y) { return {{x}, {y}}; }
LAB_EMULATION_INLINE __nv_bfloat162 __float22bfloat162_rn(float2 v) { return {{v.x}, {v.y}}; }
LAB_EMULATION_INLINE __nv_bfloat162 __halves2bfloat162(__nv_bfloat16 x, __nv_bfloat16 y) {
  return {x, y};
}
LAB_EMULATION_INLINE float2 __bfloat1622float2(__nv_bfloat162 v) {
  return {float{v.x}, float{v.y}};
}
LAB_EMULATION_INLINE float __low2float(__nv_bfloat162 v) { return v.x; }
LAB_EMULATION_INLINE float __high2float(__nv_bfloat162 v) { return v.y; }
LAB_EMULATION_INLINE unsigned short __bfloat16_as_ushort(__nv_bfloat16 value) { return value.bits; }
LAB_EMULATION_INLINE __nv_bfloat16 __ushort_as_bfloat16(unsigned short bits) {
  return std::bit_cast<__nv_bfloat16>(bits);
}
