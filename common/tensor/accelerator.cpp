#include "common/tensor/accelerator.h"

#include "common/error.h"

namespace lab {
namespace {

/// One device per process. Never destroyed: tensors with static lifetime may outlive it, and the
/// driver is gone by then.
Accelerator*& opened() {
  static Accelerator* one = nullptr;
  return one;
}

}  // namespace

void use_accelerator(int index) {
  if (opened() != nullptr) {
    require(opened()->index() == index, "GPU {} was asked for, but this process uses GPU {}", index,
            opened()->index());
    return;
  }
  const AcceleratorSupport support = accelerator_support();
  require(support.count > 0, "{}", support.problem);
  require(index >= 0 && index < support.count,
          "GPU {} was asked for, but this machine shows {}, counted from 0 (CUDA_VISIBLE_DEVICES "
          "limits them)",
          index, support.count);
  opened() = detail::open_accelerator(index).release();
}

Accelerator& accelerator() {
  if (opened() == nullptr) use_accelerator(0);
  return *opened();
}

}  // namespace lab
