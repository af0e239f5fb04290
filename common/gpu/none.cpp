// Replaces the CUDA backend in a build without one.
#include "common/error.h"
#include "common/gpu/kernels/rounded_product.h"
#include "common/tensor/accelerator.h"

namespace lab {

AcceleratorSupport accelerator_support() {
  return {.count = 0,
          .problem =
              "this build has no CUDA: install the CUDA Toolkit and configure again "
              "(./workbook setup), or use --device cpu"};
}

std::unique_ptr<Accelerator> detail::open_accelerator(int /*index*/) {
  fail("{}", accelerator_support().problem);
}

}  // namespace lab

namespace lab::cuda {

std::function<void()> product_of_rounded(const Tensor& /*x*/, const Tensor& /*weight*/,
                                         const Tensor& /*y*/) {
  fail("{}", accelerator_support().problem);
}

}  // namespace lab::cuda
