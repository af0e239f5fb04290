// CUDA's mathematical functions that the C library lacks. The fast ones are exact here: results on
// a GPU differ in the last bits.
#pragma once

#include <math.h>

#include <bit>
#include <cmath>
#include <cstdint>

#include "emulated/inline.h"

LAB_EMULATION_INLINE float rsqrtf(float x) { return 1.0F / sqrtf(x); }
LAB_EMULATION_INLINE float __frsqrt_rn(float x) { return 1.0F / sqrtf(x); }
LAB_EMULATION_INLINE float __fsqrt_rn(float x) { return sqrtf(x); }
LAB_EMULATION_INLINE float __expf(float x) { return expf(x); }
LAB_EMULATION_INLINE float __logf(float x) { return logf(x); }
LAB_EMULATION_INLINE float __log2f(float x) { return log2f(x); }
LAB_EMULATION_INLINE float __sinf(float x) { return sinf(x); }
LAB_EMULATION_INLINE float __cosf(float x) { return cosf(x); }
LAB_EMULATION_INLINE void __sincosf(float x, float* s, float* c) { *s = sinf(x), *c = cosf(x); }
LAB_EMULATION_INLINE float __powf(float x, float y) { return powf(x, y); }
LAB_EMULATION_INLINE float __fdividef(float x, float y) { return x / y; }
LAB_EMULATION_INLINE float __frcp_rn(float x) { return 1.0F / x; }
LAB_EMULATION_INLINE float __fadd_rn(float x, float y) { return x + y; }
LAB_EMULATION_INLINE float __fmul_rn(float x, float y) { return x * y; }
LAB_EMULATION_INLINE float __fmaf_rn(float x, float y, float z) { return fmaf(x, y, z); }
LAB_EMULATION_INLINE float __saturatef(float x) { return x > 0 ? (x < 1 ? x : 1.0F) : 0.0F; }
LAB_EMULATION_INLINE float __int2float_rn(int x) { return static_cast<float>(x); }
LAB_EMULATION_INLINE int __float_as_int(float x) { return std::bit_cast<int>(x); }
LAB_EMULATION_INLINE unsigned __float_as_uint(float x) { return std::bit_cast<unsigned>(x); }
LAB_EMULATION_INLINE float __int_as_float(int x) { return std::bit_cast<float>(x); }
LAB_EMULATION_INLINE float __uint_as_float(unsigned x) { return std::bit_cast<float>(x); }
LAB_EMULATION_INLINE int __popc(unsigned x) { return std::popcount(x); }
LAB_EMULATION_INLINE int __clz(int x) { return std::countl_zero(static_cast<unsigned>(x)); }
/// The place of the lowest set bit, from 1; 0 if there is none.
LAB_EMULATION_INLINE int __ffs(int x) { return __builtin_ffs(x); }

/// Reads through the cache for data that nobody writes.
template <typename T>
LAB_EMULATION_INLINE T __ldg(const T* address) {
  return *address;
}

/// Lower and upper halves of products, as hashes and random numbers use them.
LAB_EMULATION_INLINE unsigned __umulhi(unsigned x, unsigned y) {
  return static_cast<unsigned>((static_cast<uint64_t>(x) * y) >> 32);
}

inline constexpr float CUDART_INF_F = __builtin_huge_valf();

// CUDA has these without std::. They take values, not references: the access is then made where
// the kernel makes it.
LAB_EMULATION_INLINE int min(int a, int b) { return b < a ? b : a; }
LAB_EMULATION_INLINE unsigned int min(unsigned int a, unsigned int b) { return b < a ? b : a; }
LAB_EMULATION_INLINE long min(long a, long b) { return b < a ? b : a; }
LAB_EMULATION_INLINE unsigned long min(unsigned long a, unsigned long b) { return b < a ? b : a; }
LAB_EMULATION_INLINE long long min(long long a, long long b) { return b < a ? b : a; }
LAB_EMULATION_INLINE unsigned long long min(unsigned long long a, unsigned long long b) {
  return b < a ? b : a;
}
LAB_EMULATION_INLINE int max(int a, int b) { return a < b ? b : a; }
LAB_EMULATION_INLINE unsigned int max(unsigned int a, unsigned int b) { return a < b ? b : a; }
LAB_EMULATION_INLINE long max(long a, long b) { return a < b ? b : a; }
LAB_EMULATION_INLINE unsigned long max(unsigned long a, unsigned long b) { return a < b ? b : a; }
LAB_EMULATION_INLINE long long max(long long a, long long b) { return a < b ? b : a; }
LAB_EMULATION_INLINE unsigned long long max(unsigned long long a, unsigned long long b) {
  return a < b ? b : a;
}
LAB_EMULATION_INLINE float min(float a, float b) { return fminf(a, b); }
LAB_EMULATION_INLINE double min(double a, double b) { return fmin(a, b); }
LAB_EMULATION_INLINE float max(float a, float b) { return fmaxf(a, b); }
LAB_EMULATION_INLINE double max(double a, double b) { return fmax(a, b); }
