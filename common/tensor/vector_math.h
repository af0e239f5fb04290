// An exponential function that compilers can vectorise.
#pragma once

#include <bit>
#include <cstdint>

namespace lab {

/// e^x with at most 2 ulp of error, 0 below about -87.3 and 3e38 above 88.7; NaN stays NaN. Plain
/// arithmetic without branches or calls, so that compilers vectorise loops over it, which they do
/// with the library's expf only under -ffast-math.
///
/// Method (Cody and Waite): x = k ln2 + r with |r| <= ln2/2, e^x = 2^k e^r; e^r by the polynomial
/// of Cephes' expf.
inline float fast_exp(float x) {
  constexpr float kLog2e = 1.44269504088896341F;
  constexpr float kLn2High = 0.693359375F;
  constexpr float kLn2Low = -2.12194440e-4F;
  constexpr float kRound = 12582912.0F;  // 1.5 * 2^23: adding it rounds to an integer
  constexpr float kSmallest = -87.3365F;
  constexpr float kLargest = 88.7228F;

  // Written so that each line is one instruction and NaN passes through.
  const float below = kLargest < x ? kLargest : x;
  const float clamped = kSmallest > below ? kSmallest : below;
  const float shifted = clamped * kLog2e + kRound;
  const float k = shifted - kRound;
  const float r = (clamped - k * kLn2High) - k * kLn2Low;
  float p = 1.9875691500e-4F;
  p = p * r + 1.3981999507e-3F;
  p = p * r + 8.3334519073e-3F;
  p = p * r + 4.1665795894e-2F;
  p = p * r + 1.6666665459e-1F;
  p = p * r + 5.0000001201e-1F;
  p = p * r * r + r + 1.0F;
  // Times 2^k: `shifted` holds k in its lowest bits, which are added to the exponent of p.
  const uint32_t exponent = std::bit_cast<uint32_t>(shifted) << 23;
  const float value = std::bit_cast<float>(std::bit_cast<uint32_t>(p) + exponent);
  return x < kSmallest ? 0.0F : value;
}

}  // namespace lab
