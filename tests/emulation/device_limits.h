// What the emulated device can do: modelled on compute capability 8.0, which a test may set
// otherwise.
#pragma once

#include <cstddef>

namespace lab::emulation {

inline constexpr int kMajor = 8;
inline constexpr int kMinor = 0;
inline constexpr int kMultiprocessors = 4;
inline constexpr size_t kMaxThreads = 1024;
inline constexpr size_t kSharedBytes = size_t{48} * 1024;        // of a block
inline constexpr size_t kSharedBytesOptIn = size_t{163} * 1024;  // when the kernel asks for more
inline constexpr size_t kMaxPitch = 0x7fffffff;  // between rows that one call copies

}  // namespace lab::emulation
