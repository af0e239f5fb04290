// Judges every access: what kind of memory it is, whether it is in bounds, and what the shadow of
// it says. The callbacks of the compiler are in callbacks.cpp.
#include "access.h"

#include <fmt/format.h>

#include <utility>

#include "access_inline.h"
#include "check_range.h"
#include "descriptions.h"
#include "emulation.h"
#include "runtime.h"
#include "symbols.h"

namespace lab::emulation {
namespace {

const char* verb(Use use) {
  switch (use) {
    case Use::kRead:
      return "reads";
    case Use::kWrite:
      return "writes";
    case Use::kAtomic:
      break;
  }
  return "changes atomically";
}

std::string describe(const Reference& reference) {
  if (reference.region == Region::kDevice) {
    return describe_device(reference.address, reference.bytes);
  }
  if (reference.region == Region::kDynamic) {
    return describe_dynamic(reference.address, reference.bytes);
  }
  return describe_shared(reference.address, reference.bytes);
}

std::string device_bounds(uintptr_t address) {
  const DeviceMemory& memory = DeviceMemory::instance();
  if (const auto* freed = memory.freed(address)) {
    return fmt::format("which was freed ({} bytes)", freed->bytes);
  }
  const Allocation* allocation = memory.before(address);
  if (!allocation) return "which is not allocated";
  return fmt::format("outside its allocation of {} bytes", allocation->bytes);
}

std::string shared_bounds(uintptr_t address, size_t bytes) {
  const Symbol* variable = SharedVariables::instance().nearest(address);
  if (!variable) return "which a kernel cannot use";
  return fmt::format("outside the variable, which has {} of these elements",
                     (variable->end - variable->begin) / bytes);
}

[[noreturn]] void fail(const Reference& reference, std::string what) {
  what = fmt::format("{} {}{}, {}", verb(reference.use), describe(reference),
                     source_line(reference.instruction), what);
  Block::instance().fail(std::move(what));
}

}  // namespace

AccessMap access_map;

void prepare_access_checks() {
  if (access_map.valid_bytes) return;
  DeviceMemory& memory = DeviceMemory::instance();
  SharedVariables::instance();
  access_map.shared = &SharedVariables::instance();
  access_map.dynamic_begin = dynamic_shared_begin() - kDynamicSharedCapacity;
  access_map.dynamic_cells =
      static_cast<Cell*>(reserve_addresses(kDynamicSharedCapacity / 4 * sizeof(Cell)));
  access_map.device_begin = memory.base();
  access_map.valid_bytes = memory.valid_bytes();
}

void fail_bounds(const Reference& reference) {
  std::string what;
  if (reference.region == Region::kDevice) {
    what = device_bounds(reference.address);
  } else if (reference.region == Region::kStatic) {
    what = shared_bounds(reference.address, reference.bytes);
  } else {
    what = fmt::format("outside the {} bytes that the launch asked for", dynamic_shared_bytes());
  }
  fail(reference, std::move(what));
}

void fail_alignment(const Reference& reference, size_t alignment) {
  fail(reference, fmt::format("{} bytes at once, which do not begin at a multiple of {} bytes",
                              reference.bytes, alignment));
}

void fail_judgement(const Reference& reference, const Judgement& judgement) {
  const bool other_block = phase_of(judgement.other) < clock_now.block;
  const char* missing = other_block ? "nothing orders blocks" : "without a barrier in between";
  std::string what;
  if (judgement.verdict == Verdict::kAfterRead) {
    what = fmt::format("which {} read: {}", describe_thread(judgement.other), missing);
  } else if (judgement.verdict == Verdict::kAfterWrite) {
    what = fmt::format("which {} wrote{}: {}", describe_thread(judgement.other),
                       is_atomic(judgement.other) ? " atomically" : "", missing);
  } else if (reference.region == Region::kDevice) {
    what = "which was never written";
  } else {
    what = "which no thread of this block has written yet: a barrier is missing, or the value";
  }
  fail(reference, std::move(what));
}

void access_elsewhere(uintptr_t address, size_t bytes, Use use, const void* instruction) {
  const KernelCall& call = Block::instance().call();
  const auto begin = reinterpret_cast<uintptr_t>(call.begin);
  const auto end = reinterpret_cast<uintptr_t>(call.end);
  if (address >= begin && address + bytes <= end && use == Use::kRead) return;
  if (use == Use::kRead && is_constant(address)) return;
  if (SharedVariables::instance().nearest(address)) {  // an index that runs out of all variables
    fail_bounds({address, bytes, use, Region::kStatic, instruction});
  }
  std::string what =
      fmt::format("{} memory of the host ({} bytes){}", verb(use), bytes, source_line(instruction));
  Block::instance().fail(std::move(what));
}

void access_from_host(size_t bytes, Use use, const void* instruction) {
  const auto lock = lock_runtime();
  keep_error(std::make_exception_ptr(
      KernelError(fmt::format("host code {} device memory ({} bytes){}: copy it with cudaMemcpy",
                              verb(use), bytes, source_line(instruction)))));
}

void atomic_access(const void* address, size_t bytes) {
  access<Use::kAtomic>(const_cast<void*>(address), bytes, __builtin_return_address(0));
}

void check_range(const char* name, const void* address, size_t bytes, Access access) {
  if (!DeviceMemory::instance().find(reinterpret_cast<uintptr_t>(address), bytes)) {
    throw KernelError(
        fmt::format("{}: {} bytes are not all in one allocation of device memory", name, bytes));
  }
  if (access == Access::kWrite) {
    mark_written(address, bytes);
  } else if (find_unwritten(address, bytes)) {
    throw KernelError(fmt::format("{}: reads device memory which was never written", name));
  }
}

}  // namespace lab::emulation
