// float4, int2, dim3 and their like.
#pragma once

#include "emulated/inline.h"

struct alignas(8) float2 {
  float x;
  float y;
};
LAB_EMULATION_INLINE float2 make_float2(float x, float y) { return {x, y}; }

struct float3 {
  float x;
  float y;
  float z;
};
LAB_EMULATION_INLINE float3 make_float3(float x, float y, float z) { return {x, y, z}; }

struct alignas(16) float4 {
  float x;
  float y;
  float z;
  float w;
};
LAB_EMULATION_INLINE float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }

struct alignas(8) int2 {
  int x;
  int y;
};
LAB_EMULATION_INLINE int2 make_int2(int x, int y) { return {x, y}; }

struct int3 {
  int x;
  int y;
  int z;
};
LAB_EMULATION_INLINE int3 make_int3(int x, int y, int z) { return {x, y, z}; }

struct alignas(16) int4 {
  int x;
  int y;
  int z;
  int w;
};
LAB_EMULATION_INLINE int4 make_int4(int x, int y, int z, int w) { return {x, y, z, w}; }

struct alignas(8) uint2 {
  unsigned int x;
  unsigned int y;
};
LAB_EMULATION_INLINE uint2 make_uint2(unsigned int x, unsigned int y) { return {x, y}; }

struct uint3 {
  unsigned int x;
  unsigned int y;
  unsigned int z;
};
LAB_EMULATION_INLINE uint3 make_uint3(unsigned int x, unsigned int y, unsigned int z) {
  return {x, y, z};
}

struct alignas(16) uint4 {
  unsigned int x;
  unsigned int y;
  unsigned int z;
  unsigned int w;
};
LAB_EMULATION_INLINE uint4 make_uint4(unsigned int x, unsigned int y, unsigned int z,
                                      unsigned int w) {
  return {x, y, z, w};
}

struct alignas(4) ushort2 {
  unsigned short x;
  unsigned short y;
};
LAB_EMULATION_INLINE ushort2 make_ushort2(unsigned short x, unsigned short y) { return {x, y}; }

struct ushort3 {
  unsigned short x;
  unsigned short y;
  unsigned short z;
};
LAB_EMULATION_INLINE ushort3 make_ushort3(unsigned short x, unsigned short y, unsigned short z) {
  return {x, y, z};
}

struct alignas(8) ushort4 {
  unsigned short x;
  unsigned short y;
  unsigned short z;
  unsigned short w;
};
LAB_EMULATION_INLINE ushort4 make_ushort4(unsigned short x, unsigned short y, unsigned short z,
                                          unsigned short w) {
  return {x, y, z, w};
}

struct alignas(2) uchar2 {
  unsigned char x;
  unsigned char y;
};
LAB_EMULATION_INLINE uchar2 make_uchar2(unsigned char x, unsigned char y) { return {x, y}; }

struct uchar3 {
  unsigned char x;
  unsigned char y;
  unsigned char z;
};
LAB_EMULATION_INLINE uchar3 make_uchar3(unsigned char x, unsigned char y, unsigned char z) {
  return {x, y, z};
}

struct alignas(4) uchar4 {
  unsigned char x;
  unsigned char y;
  unsigned char z;
  unsigned char w;
};
LAB_EMULATION_INLINE uchar4 make_uchar4(unsigned char x, unsigned char y, unsigned char z,
                                        unsigned char w) {
  return {x, y, z, w};
}

/// Sizes of grids and blocks; what is left out is 1.
struct dim3 {
  constexpr dim3(unsigned int vx = 1, unsigned int vy = 1, unsigned int vz = 1)
      : x(vx), y(vy), z(vz) {}
  constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z) {}
  constexpr operator uint3() const { return {x, y, z}; }

  unsigned int x;
  unsigned int y;
  unsigned int z;
};
