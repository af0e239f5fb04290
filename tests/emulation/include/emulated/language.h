// The words that CUDA adds to C++, and the built-in variables of a kernel.
#pragma once

#include "emulated/vector_types.h"

// A kernel inlines all that it calls: GCC does not report the access when a struct in memory is the
// argument of a call, or receives its result.
#define __global__ __attribute__((flatten))
#define __device__
#define __host__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __grid_constant__
#define __align__(bytes) __attribute__((aligned(bytes)))

// Blocks run one after the other, so a variable of the block can be a static one. In front of each
// lies a gap that no kernel may touch: an index that runs over the end of a variable is found there
// instead of in the next variable.
#define LAB_EMULATION_JOIN(a, b) a##b
#define LAB_EMULATION_GAP(number) LAB_EMULATION_JOIN(lab_emulation_gap_, number)
#define __shared__                                                             \
  [[gnu::used]] alignas(256) static char LAB_EMULATION_GAP(__COUNTER__)[1024]; \
  static __attribute__((aligned(16)))

namespace lab::emulation {

/// Where the running thread is: the scheduler writes it, kernels read it.
struct Coordinates {
  uint3 thread;
  uint3 block;
  dim3 block_size;
  dim3 grid_size;
};
extern Coordinates coordinates;

/// The memory that common/gpu/cuda/dynamic_shared.h returns: as many bytes as the launch requested.
void* dynamic_shared_memory();

}  // namespace lab::emulation

inline constexpr const uint3& threadIdx = lab::emulation::coordinates.thread;
inline constexpr const uint3& blockIdx = lab::emulation::coordinates.block;
inline constexpr const dim3& blockDim = lab::emulation::coordinates.block_size;
inline constexpr const dim3& gridDim = lab::emulation::coordinates.grid_size;
inline constexpr int warpSize = 32;
