// Tokens in memory that a device can read.
#pragma once

#include <cstdint>
#include <span>

#include "common/tensor/tensor.h"

namespace lab {

/// A copy of some tokens in the memory of a device. Its address does not change as long as it is
/// large enough, so recorded work that reads it can be repeated with other tokens.
class DeviceTokens {
 public:
  explicit DeviceTokens(Device device = Device::kCpu) : device_(device) {}

  /// On a GPU asynchronous, in the order of its other work.
  void assign(std::span<const int32_t> tokens);
  /// The tokens, to be read on the device.
  std::span<const int32_t> tokens() const;

 private:
  Device device_;
  Tensor memory_;  // as many elements of 4 bytes
  int64_t count_ = 0;
};

}  // namespace lab
