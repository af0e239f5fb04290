// A struct that functions get and return, for kernels that keep it in shared memory.
#pragma once

#include <cuda_runtime.h>

namespace lab::emulation {

struct Pair {
  float sum;
  float count;
};

/// Too large for the compiler to inline it unasked.
static __device__ Pair added(Pair a, Pair b) {
  const float sum = logf(expf(a.sum) * expf(b.sum));
  return {sum, logf(expf(a.count) * expf(b.count))};
}

}  // namespace lab::emulation
