#include "common/comm/host_copy.h"

#include "common/tensor/accelerator.h"

namespace lab {

HostCopy::HostCopy(const Tensor& tensor, bool reaches_gpus) : tensor_(tensor) {
  if (tensor.device() == Device::kCuda && !reaches_gpus) host_ = Tensor::pinned(tensor.shape());
}

std::span<float> HostCopy::numbers() const {
  if (host_.defined()) return host_.values();
  return {tensor_.data(), static_cast<size_t>(tensor_.numel())};
}

void HostCopy::load() const {
  if (!host_.defined()) return;
  host_.copy_from(tensor_);
  accelerator().synchronize();
}

void HostCopy::store() const {
  if (!host_.defined()) return;
  tensor_.copy_from(host_);
  accelerator().synchronize();
}

}  // namespace lab
