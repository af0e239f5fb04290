// What g++ calls before each access to memory in code compiled with -fsanitize=thread. The names
// are those of its ThreadSanitizer, whose library is not linked: these functions take its place.
#include <cstring>

#include "access_inline.h"

using lab::emulation::access;
using lab::emulation::Use;

// One family of functions: a macro writes it.
#define LAB_TSAN_ACCESS(name, bytes, use, alignment)                          \
  void __tsan_##name(void* address) {                                         \
    access<Use::use>(address, bytes, __builtin_return_address(0), alignment); \
  }
#define LAB_TSAN_ACCESSES(bytes)                            \
  LAB_TSAN_ACCESS(read##bytes, bytes, kRead, bytes)         \
  LAB_TSAN_ACCESS(write##bytes, bytes, kWrite, bytes)       \
  LAB_TSAN_ACCESS(unaligned_read##bytes, bytes, kRead, 1)   \
  LAB_TSAN_ACCESS(unaligned_write##bytes, bytes, kWrite, 1) \
  LAB_TSAN_ACCESS(volatile_read##bytes, bytes, kRead, 1)    \
  LAB_TSAN_ACCESS(volatile_write##bytes, bytes, kWrite, 1)

extern "C" {
// NOLINTBEGIN(readability-identifier-naming)

LAB_TSAN_ACCESSES(1)
LAB_TSAN_ACCESSES(2)
LAB_TSAN_ACCESSES(4)
LAB_TSAN_ACCESSES(8)
LAB_TSAN_ACCESSES(16)

void __tsan_read_range(void* address, size_t bytes) {
  if (bytes > 0) access<Use::kRead>(address, bytes, __builtin_return_address(0));
}

void __tsan_write_range(void* address, size_t bytes) {
  if (bytes > 0) access<Use::kWrite>(address, bytes, __builtin_return_address(0));
}

// Clang calls these instead of the functions of the C library.
void* __tsan_memcpy(void* to, const void* from, size_t bytes) {
  __tsan_read_range(const_cast<void*>(from), bytes);
  __tsan_write_range(to, bytes);
  return std::memcpy(to, from, bytes);
}
void* __tsan_memmove(void* to, const void* from, size_t bytes) {
  __tsan_read_range(const_cast<void*>(from), bytes);
  __tsan_write_range(to, bytes);
  return std::memmove(to, from, bytes);
}
void* __tsan_memset(void* to, int value, size_t bytes) {
  __tsan_write_range(to, bytes);
  return std::memset(to, value, bytes);
}

// Nothing to do: objects with virtual functions are the host's affair.
void __tsan_init() {}
void __tsan_vptr_update(void*, void*) {}
void __tsan_vptr_read(void*) {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
// NOLINTEND(readability-identifier-naming)
}
