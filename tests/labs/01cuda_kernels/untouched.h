// What lies in memory that a kernel has yet to write.
#pragma once

namespace lab01cuda {

/// No test computes this number.
inline constexpr float kUntouched = -98765.0F;

}  // namespace lab01cuda
