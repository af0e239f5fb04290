// Dynamic shared memory: one buffer, of which a launch may use as much as it asked for.
#pragma once

#include <cstddef>
#include <cstdint>

namespace lab::emulation {

inline constexpr size_t kDynamicSharedCapacity = size_t{256} * 1024;

/// The launch that runs asked for so many bytes.
void start_dynamic_shared(size_t bytes);
size_t dynamic_shared_bytes();
/// The buffer; before and after it is a gap as long as itself.
uintptr_t dynamic_shared_begin();

}  // namespace lab::emulation
