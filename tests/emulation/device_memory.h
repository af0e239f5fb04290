// The memory of the emulated devices: one stretch of addresses, handed out piece by piece.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>

namespace lab::emulation {

struct Allocation {
  uintptr_t begin;
  size_t bytes;
  int device;
};

/// Addresses are not given out again while others are left, so that freed memory is recognised.
/// Between two allocations lies a gap of at least kGranule bytes.
class DeviceMemory {
 public:
  static constexpr size_t kCapacity = size_t{16} << 30;
  static constexpr size_t kGranule = 256;

  static DeviceMemory& instance();

  /// Returns 0 if the device has not that much left.
  uintptr_t allocate(size_t bytes, int device);
  /// Returns whether something was allocated there.
  bool release(uintptr_t begin);

  bool contains(uintptr_t address) const { return address - base_ < kCapacity; }
  /// The allocation that holds the bytes, or null.
  const Allocation* find(uintptr_t address, size_t bytes) const;
  /// The one that lies nearest before the address, or null.
  const Allocation* before(uintptr_t address) const;
  /// What was freed there, or null.
  const Allocation* freed(uintptr_t address) const;
  size_t used(int device) const;

  uintptr_t base() const { return base_; }
  /// For each granule, how many of its bytes are allocated.
  const uint16_t* valid_bytes() const { return valid_bytes_; }

 private:
  DeviceMemory();
  bool is_free(uintptr_t begin, size_t bytes) const;
  void mark(const Allocation& allocation, bool valid);

  uintptr_t base_;
  uintptr_t next_;
  uint16_t* valid_bytes_;
  std::map<uintptr_t, Allocation> allocations_;
  std::map<uintptr_t, Allocation> freed_;  // for messages
};

/// Addresses that are mapped when they are touched. Throws std::bad_alloc.
void* reserve_addresses(size_t bytes);

}  // namespace lab::emulation
