// Device memory as collectives and messages use it.
#include <fmt/format.h>

#include <cstring>

#include "tests/emulation/device_memory.h"
#include "tests/emulation/emulation.h"
#include "tests/emulation/nccl/operation.h"
#include "tests/emulation/shadow.h"

namespace lab::emulation::nccl {

void check_memory(const void* address, size_t bytes, bool reads) {
  if (bytes == 0) return;
  const auto begin = reinterpret_cast<uintptr_t>(address);
  if (DeviceMemory::instance().find(begin, bytes) == nullptr)
    throw KernelError(
        fmt::format("NCCL: {} bytes at {} are not memory of the device", bytes, address));
  if (reads && find_unwritten(address, bytes) != nullptr)
    throw KernelError(
        fmt::format("NCCL: some of {} bytes at {} were never written", bytes, address));
}

void copy_bytes(void* to, const void* from, size_t bytes) {
  if (bytes == 0) return;
  std::memmove(to, from, bytes);
  mark_written(to, bytes);
}

}  // namespace lab::emulation::nccl
