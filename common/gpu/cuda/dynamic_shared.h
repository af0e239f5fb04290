// Shared memory whose size is given at launch.
#pragma once

#include <cuda_runtime.h>

namespace lab::cuda {

/// The block's dynamic shared memory, aligned to 16 bytes, as an array of T; its size is
/// `dynamicSmemBytes` of the launch. All calls in a kernel return the same memory. Not initialised.
template <typename T>
__device__ T* dynamic_shared() {
#ifdef __CUDACC__
  extern __shared__ __align__(16) unsigned char dynamic_shared_bytes[];
  return reinterpret_cast<T*>(dynamic_shared_bytes);
#else
  return static_cast<T*>(emulation::dynamic_shared_memory());
#endif
}

}  // namespace lab::cuda
