// Counts what operator new gives to each thread: every simulated rank has one.
#include "tests/labs/07_allreduce/rank_scratch.h"

#include <malloc.h>

#include <algorithm>
#include <cstdlib>
#include <new>

namespace {

thread_local ptrdiff_t in_use = 0;
thread_local ptrdiff_t most = 0;

void* counted(void* block) {
  if (block == nullptr) return nullptr;
  in_use += static_cast<ptrdiff_t>(malloc_usable_size(block));
  most = std::max(most, in_use);
  return block;
}

void* or_throw(void* block) {
  if (block == nullptr) throw std::bad_alloc();
  return block;
}

void release(void* block) {
  if (block == nullptr) return;
  in_use -= static_cast<ptrdiff_t>(malloc_usable_size(block));
  std::free(block);
}

}  // namespace

namespace lab07::scenario {

void count_scratch() { in_use = most = 0; }
size_t most_scratch() { return static_cast<size_t>(most); }
size_t kept_scratch() { return static_cast<size_t>(std::max<ptrdiff_t>(in_use, 0)); }

}  // namespace lab07::scenario

// The standard lets a program replace these; the forms for arrays call them. AddressSanitizer would
// bring its own form of any that were missing here.
void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
  return counted(std::malloc(bytes));
}
void* operator new(size_t bytes, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  const auto boundary = static_cast<size_t>(alignment);
  return counted(std::aligned_alloc(boundary, (bytes + boundary - 1) / boundary * boundary));
}
void* operator new(size_t bytes) { return or_throw(operator new(bytes, std::nothrow)); }
void* operator new(size_t bytes, std::align_val_t alignment) {
  return or_throw(operator new(bytes, alignment, std::nothrow));
}
void operator delete(void* block) noexcept { release(block); }
void operator delete(void* block, size_t) noexcept { release(block); }
void operator delete(void* block, std::align_val_t) noexcept { release(block); }
void operator delete(void* block, size_t, std::align_val_t) noexcept { release(block); }
