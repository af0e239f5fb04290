// Checks for code that is not a kernel but works on device memory: cuBLAS.
#pragma once

#include <cstddef>

namespace lab::emulation {

enum class Access { kRead, kWrite };

/// Throws KernelError unless the bytes are allocated device memory, and, if they are read, written
/// before. What is written counts as written from then on. `name` is the subject of the message.
void check_range(const char* name, const void* address, size_t bytes, Access access);

}  // namespace lab::emulation
