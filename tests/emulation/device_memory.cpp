#include "device_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <new>

#include "settings.h"
#include "shadow.h"

namespace lab::emulation {
namespace {

size_t round_up(size_t bytes) {
  return (bytes + DeviceMemory::kGranule - 1) / DeviceMemory::kGranule * DeviceMemory::kGranule;
}

/// What it takes of the address range: at least a granule is left free after it.
size_t footprint(size_t bytes) { return round_up(bytes) + DeviceMemory::kGranule; }

}  // namespace

void* reserve_addresses(size_t bytes) {
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  return memory;
}

DeviceMemory::DeviceMemory()
    : base_(reinterpret_cast<uintptr_t>(reserve_addresses(kCapacity))),
      next_(base_ + kGranule),
      valid_bytes_(
          static_cast<uint16_t*>(reserve_addresses(kCapacity / kGranule * sizeof(uint16_t)))) {
  device_cells = static_cast<Cell*>(reserve_addresses(kCapacity / 4 * sizeof(Cell)));
}

DeviceMemory& DeviceMemory::instance() {
  static DeviceMemory& memory = *new DeviceMemory;  // never destroyed: memory may be freed at exit
  return memory;
}

uintptr_t DeviceMemory::allocate(size_t bytes, int device) {
  if (bytes > settings().total_memory - std::min(settings().total_memory, used(device))) return 0;
  uintptr_t begin = next_;
  for (auto it = allocations_.begin(); !is_free(begin, bytes) && it != allocations_.end(); ++it) {
    begin = it->first + footprint(it->second.bytes);
  }
  if (!is_free(begin, bytes)) return 0;
  next_ = begin + footprint(bytes);
  const Allocation allocation{begin, bytes, device};
  freed_.erase(freed_.lower_bound(begin), freed_.lower_bound(begin + bytes));
  allocations_[begin] = allocation;
  mark(allocation, true);
  return begin;
}

bool DeviceMemory::is_free(uintptr_t begin, size_t bytes) const {
  if (begin + footprint(bytes) > base_ + kCapacity) return false;
  const auto after = allocations_.lower_bound(begin);
  return after == allocations_.end() || after->first >= begin + footprint(bytes);
}

bool DeviceMemory::release(uintptr_t begin) {
  const auto it = allocations_.find(begin);
  if (it == allocations_.end()) return false;
  mark(it->second, false);
  // Its pages are returned; reads there find zeros.
  const uintptr_t first_page = (begin + 4095) & ~uintptr_t{4095};
  const uintptr_t last_page = (begin + it->second.bytes) & ~uintptr_t{4095};
  if (last_page > first_page) {
    madvise(reinterpret_cast<void*>(first_page), last_page - first_page, MADV_DONTNEED);
  }
  freed_[begin] = it->second;
  allocations_.erase(it);
  return true;
}

void DeviceMemory::mark(const Allocation& allocation, bool valid) {
  uint16_t* granule = valid_bytes_ + (allocation.begin - base_) / kGranule;
  for (size_t at = 0; at < allocation.bytes; at += kGranule) {
    const size_t here = std::min(kGranule, allocation.bytes - at);
    *granule++ = valid ? static_cast<uint16_t>(here) : uint16_t{0};
  }
}

const Allocation* DeviceMemory::before(uintptr_t address) const {
  const auto after = allocations_.upper_bound(address);
  return after == allocations_.begin() ? nullptr : &std::prev(after)->second;
}

const Allocation* DeviceMemory::find(uintptr_t address, size_t bytes) const {
  const Allocation* found = before(address);
  return found && address - found->begin + bytes <= found->bytes ? found : nullptr;
}

const Allocation* DeviceMemory::freed(uintptr_t address) const {
  const auto after = freed_.upper_bound(address);
  if (after == freed_.begin()) return nullptr;
  const Allocation& found = std::prev(after)->second;
  return address - found.begin < found.bytes ? &found : nullptr;
}

size_t DeviceMemory::used(int device) const {
  size_t sum = 0;
  for (const auto& [begin, allocation] : allocations_) {
    if (allocation.device == device) sum += allocation.bytes;
  }
  return sum;
}

}  // namespace lab::emulation
