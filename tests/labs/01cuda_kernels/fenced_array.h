// FencedArray: numbers in GPU memory, with others to their left and right that nobody may touch.
#pragma once

#include <cstdint>

#include "common/tensor/tensor.h"

namespace lab01cuda {

/// With a fence of 0 elements the memory is just as long as the numbers: then the emulation finds
/// every access beyond it. With a fence, the result shows it: what lies there is not a number.
class FencedArray {
 public:
  FencedArray(const lab::Tensor& values, int64_t fence);

  /// The first of the numbers, in GPU memory.
  float* data() const { return memory_.data() + fence_; }
  /// The numbers as they are now.
  lab::Tensor read() const;
  bool fence_is_intact() const;

 private:
  lab::Shape shape_;
  int64_t fence_;
  lab::Tensor memory_;
};

}  // namespace lab01cuda
