// The way of every access, inline for speed: which memory is it, is it in bounds, then touch().
#pragma once

#include <cstdlib>

#include "block.h"
#include "device_memory.h"
#include "dynamic_shared.h"
#include "shared_variables.h"
#include "touch.h"

namespace lab::emulation {

enum class Region { kDevice, kStatic, kDynamic };

struct Reference {
  uintptr_t address;
  size_t bytes;
  Use use;
  Region region;
  const void* instruction;
};

[[noreturn]] void fail_bounds(const Reference& reference);
[[noreturn]] void fail_alignment(const Reference& reference, size_t alignment);
[[noreturn]] void fail_judgement(const Reference& reference, const Judgement& judgement);
/// Neither the thread's own stack nor memory of the device: the arguments, constants, or an error.
void access_elsewhere(uintptr_t address, size_t bytes, Use use, const void* instruction);
void access_from_host(size_t bytes, Use use, const void* instruction);

/// Where things lie, once it is known; before, nothing lies anywhere.
struct AccessMap {
  static constexpr uintptr_t kNowhere = ~uintptr_t{0} / 2;
  uintptr_t device_begin = kNowhere;
  const uint16_t* valid_bytes = nullptr;
  SharedVariables* shared = nullptr;
  uintptr_t dynamic_begin = kNowhere;
  Cell* dynamic_cells = nullptr;
};
extern AccessMap access_map;

/// Word by word; counts what is read.
template <Space space, Use use>
inline void touch_words(Cell* cell, const Reference& r, Thread& thread) {
  if (use == Use::kRead) thread.bytes_read += r.bytes;
  size_t first = r.address % 4;
  for (size_t left = r.bytes; left > 0; ++cell, first = 0) {
    const size_t count = std::min<size_t>(4 - first, left);
    const uint32_t bytes = ((1U << count) - 1) << first;
    const Judgement judgement = touch<space, use>(*cell, bytes, thread);
    if (judgement.verdict != Verdict::kFine) [[unlikely]] {
      Reference part = r;
      if (r.bytes > 4) part.address = (r.address + (r.bytes - left)), part.bytes = count;
      fail_judgement(part, judgement);
    }
    left -= count;
  }
}

template <Use use>
inline void access_device(const Reference& r, Thread& thread) {
  const size_t offset = r.address - access_map.device_begin;
  const size_t granule = offset / DeviceMemory::kGranule;
  if (offset % DeviceMemory::kGranule + r.bytes > access_map.valid_bytes[granule] &&
      !DeviceMemory::instance().find(r.address, r.bytes)) [[unlikely]] {
    fail_bounds(r);
  }
  if (use == Use::kRead) thread.device_bytes_read += r.bytes;
  if (use == Use::kWrite) thread.device_bytes_written += r.bytes;
  touch_words<Space::kDevice, use>(device_cells + offset / 4, r, thread);
}

template <Use use>
inline void access_dynamic(const Reference& r, Thread& thread) {
  const size_t offset = r.address - dynamic_shared_begin();
  if (offset >= dynamic_shared_bytes() || offset + r.bytes > dynamic_shared_bytes()) {
    fail_bounds(r);
  }
  touch_words<Space::kShared, use>(access_map.dynamic_cells + offset / 4, r, thread);
}

template <Use use>
inline void access_static(SharedVariables::Region& region, const Reference& r, Thread& thread) {
  const WordKind kind = region.kind(r.address);
  if (kind == WordKind::kIgnored) return;
  const bool inside = kind == WordKind::kShared && r.bytes <= 4 && r.address % 4 + r.bytes <= 4;
  if (!inside && !access_map.shared->find(r.address, r.bytes)) [[unlikely]] {
    fail_bounds(r);
  }
  touch_words<Space::kShared, use>(&region.cell(r.address), r, thread);
}

/// `alignment`: of which the address must be a multiple, in bytes.
template <Use use>
inline void access(void* pointer, size_t bytes, const void* instruction, size_t alignment = 1) {
  const auto address = reinterpret_cast<uintptr_t>(pointer);
  Thread* thread = current_thread;
  const bool on_device = address - access_map.device_begin < DeviceMemory::kCapacity;
  if (!thread) [[unlikely]] {
    if (on_device) access_from_host(bytes, use, instruction);
    return;
  }
  if (address - thread->stack < FiberPool::kStackBytes) return;
  const auto in = [&](Region region) {
    const Reference reference{address, bytes, use, region, instruction};
    if (address % alignment != 0) [[unlikely]]
      fail_alignment(reference, alignment);
    return reference;
  };
  if (on_device) {
    access_device<use>(in(Region::kDevice), *thread);
  } else if (SharedVariables::Region* region = access_map.shared->region(address)) {
    access_static<use>(*region, in(Region::kStatic), *thread);
  } else if (address - access_map.dynamic_begin < 3 * kDynamicSharedCapacity) {
    access_dynamic<use>(in(Region::kDynamic), *thread);
  } else {
    access_elsewhere(address, bytes, use, instruction);
  }
}

}  // namespace lab::emulation
