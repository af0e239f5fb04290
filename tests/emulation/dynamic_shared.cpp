#include "dynamic_shared.h"

#include "device_memory.h"
#include "emulated/language.h"

namespace lab::emulation {
namespace {

size_t bytes_of_launch = 0;

}  // namespace

uintptr_t dynamic_shared_begin() {
  static const uintptr_t begin =
      reinterpret_cast<uintptr_t>(reserve_addresses(3 * kDynamicSharedCapacity)) +
      kDynamicSharedCapacity;
  return begin;
}

void start_dynamic_shared(size_t bytes) { bytes_of_launch = bytes; }
size_t dynamic_shared_bytes() { return bytes_of_launch; }

void* dynamic_shared_memory() { return reinterpret_cast<void*>(dynamic_shared_begin()); }

}  // namespace lab::emulation
