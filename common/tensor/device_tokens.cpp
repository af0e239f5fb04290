#include "common/tensor/device_tokens.h"

#include <cstring>

#include "common/tensor/accelerator.h"
#include "common/tensor/memory_account.h"

namespace lab {

void DeviceTokens::assign(std::span<const int32_t> tokens) {
  static_assert(sizeof(int32_t) == sizeof(float));
  count_ = static_cast<int64_t>(tokens.size());
  if (!memory_.defined() || memory_.numel() < count_) {
    const MemoryOf kind(MemoryKind::kActivations);
    memory_ = Tensor::empty({count_}, device_);
  }
  if (tokens.empty()) return;
  if (device_ == Device::kCpu)
    std::memcpy(memory_.data(), tokens.data(), tokens.size_bytes());
  else
    accelerator().copy({.to = memory_.data(),
                        .to_pitch = tokens.size_bytes(),
                        .from = tokens.data(),
                        .from_pitch = tokens.size_bytes(),
                        .width = tokens.size_bytes()});
}

std::span<const int32_t> DeviceTokens::tokens() const {
  return {reinterpret_cast<const int32_t*>(memory_.data()), static_cast<size_t>(count_)};
}

}  // namespace lab
