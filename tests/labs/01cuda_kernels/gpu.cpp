// machine.h for a GPU.
#include "common/tensor/accelerator.h"
#include "tests/labs/01cuda_kernels/machine.h"

namespace lab01cuda {

Work watch(int /*order*/, int /*block_step*/, const std::function<void()>& call,
           const std::function<void()>& read) {
  call();
  lab::accelerator().synchronize();
  read();
  return {};
}

int64_t least_fence() { return 64; }

}  // namespace lab01cuda
