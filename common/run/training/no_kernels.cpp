// Replaces the kernels of lab 01cuda in a build without CUDA, where these functions are never
// reached: there is no GPU memory to call them with. Also those of the solution in a released copy
// of the workbook.
#include "common/error.h"
#include "common/run/training/linked_labs.h"

namespace lab01cuda {
namespace {

[[noreturn]] void no_cuda() { lab::fail("this build has no CUDA kernels: use --device cpu"); }

}  // namespace

void launch_softmax_cross_entropy(float* /*logits*/, const int32_t* /*targets*/, float /*scale*/,
                                  float* /*losses*/, int64_t /*rows*/, int64_t /*vocab*/) {
  no_cuda();
}

void launch_adam(const lab::AdamConfig& /*config*/, float /*learning_rate*/, int64_t /*step*/,
                 float* /*parameters*/, const float* /*gradients*/, float* /*first_moment*/,
                 float* /*second_moment*/, int64_t /*count*/) {
  no_cuda();
}

}  // namespace lab01cuda
