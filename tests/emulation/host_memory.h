// Page-locked memory of the host: only from there are copies truly asynchronous.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

namespace lab::emulation {

class HostMemory {
 public:
  static HostMemory& instance();
  void* allocate(size_t bytes);
  bool release(void* address);
  bool is_pinned(const void* address) const;

 private:
  std::map<uintptr_t, std::vector<char>> blocks_;
};

}  // namespace lab::emulation
