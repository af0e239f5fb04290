#include "host_memory.h"

#include <iterator>
#include <utility>

namespace lab::emulation {

HostMemory& HostMemory::instance() {
  static HostMemory& memory = *new HostMemory;  // never destroyed: memory may be freed at exit
  return memory;
}

void* HostMemory::allocate(size_t bytes) {
  constexpr uintptr_t kAlignment = 4096;
  std::vector<char> block(bytes + kAlignment);
  const uintptr_t begin =
      (reinterpret_cast<uintptr_t>(block.data()) + kAlignment - 1) & ~(kAlignment - 1);
  blocks_[begin] = std::move(block);
  return reinterpret_cast<void*>(begin);
}

bool HostMemory::release(void* address) {
  return blocks_.erase(reinterpret_cast<uintptr_t>(address)) > 0;
}

bool HostMemory::is_pinned(const void* address) const {
  const auto at = reinterpret_cast<uintptr_t>(address);
  const auto after = blocks_.upper_bound(at);
  if (after == blocks_.begin()) return false;
  const std::vector<char>& block = std::prev(after)->second;
  return at < reinterpret_cast<uintptr_t>(block.data()) + block.size();
}

}  // namespace lab::emulation
