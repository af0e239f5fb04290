#include "descriptions.h"

#include <fmt/format.h>

#include <cstdio>
#include <cstring>
#include <memory>

#include "block.h"
#include "device_memory.h"
#include "dynamic_shared.h"
#include "shared_variables.h"
#include "symbols.h"

namespace lab::emulation {
namespace {

int64_t index_from(uintptr_t begin, uintptr_t address, size_t bytes) {
  const auto offset = static_cast<int64_t>(address - begin);
  const auto unit = static_cast<int64_t>(bytes);
  return offset >= 0 ? offset / unit : -((-offset + unit - 1) / unit);
}

struct ArgumentPlace {
  size_t number = 0;  // from 1; 0: none
  uintptr_t pointer = 0;
};

/// The pointer among the arguments that lies nearest before the address, or, failing that, after
/// it; in the same allocation.
ArgumentPlace find_argument(uintptr_t address) {
  const DeviceMemory& memory = DeviceMemory::instance();
  const Allocation* allocation = memory.before(address);
  ArgumentPlace best;
  const KernelCall& call = Block::instance().call();
  for (size_t i = 0; i < call.arguments.size(); ++i) {
    const auto [data, size] = call.arguments[i];
    for (size_t at = 0; at + sizeof(uintptr_t) <= size; at += sizeof(uintptr_t)) {
      uintptr_t pointer = 0;
      std::memcpy(&pointer, static_cast<const char*>(data) + at, sizeof(pointer));
      if (!memory.contains(pointer)) continue;
      const bool before = pointer <= address && memory.before(pointer) == allocation;
      const bool after = pointer > address && pointer - address <= 4096;
      const bool better = best.number == 0 || (before && pointer > best.pointer) ||
                          (before && best.pointer > address);
      if ((before || after) && better) best = {i + 1, pointer};
    }
  }
  return best;
}

}  // namespace

std::string describe_shared(uintptr_t address, size_t bytes) {
  SharedVariables& shared = SharedVariables::instance();
  SharedVariables::Region* region = shared.region(address);
  const Symbol* other = find_symbol(symbols().variables, address);
  const bool of_host = other && region && region->kind(address) == WordKind::kHost;
  const std::string host = of_host ? readable_variable(other->name) : "";
  const Symbol* near = shared.nearest(address);
  if (!near) return fmt::format("variable {} of the host", host);
  const std::string name =
      fmt::format("{}[{}]", readable_variable(near->name), index_from(near->begin, address, bytes));
  return of_host ? fmt::format("{}, or variable {} of the host", name, host) : name;
}

std::string describe_dynamic(uintptr_t address, size_t bytes) {
  return fmt::format("dynamic shared memory [{}]",
                     index_from(dynamic_shared_begin(), address, bytes));
}

std::string describe_device(uintptr_t address, size_t bytes) {
  const ArgumentPlace place = find_argument(address);
  if (place.number != 0) {
    return fmt::format("argument {} [{}]", place.number, index_from(place.pointer, address, bytes));
  }
  const Allocation* allocation = DeviceMemory::instance().before(address);
  if (!allocation) return "device memory";
  return fmt::format("device memory [{}]", index_from(allocation->begin, address, bytes));
}

std::string describe_thread(Record record) {
  const Block& block = Block::instance();
  const std::string name = block.name(block.threads()[thread_of(record)]);
  if (phase_of(record) >= clock_now.block) return name;
  const uint3 b = block_in_phase(phase_of(record));
  return fmt::format("{} of block ({},{},{})", name, b.x, b.y, b.z);
}

std::string source_line(const void* instruction) {
  // The return address is after the call.
  const FilePlace place = file_place(reinterpret_cast<uintptr_t>(instruction) - 1);
  const std::string command =
      fmt::format("addr2line -e '{}' {:#x} 2>/dev/null", place.file, place.address);
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(command.c_str(), "r"), pclose);
  char line[1024] = {};
  if (!pipe || !std::fgets(line, sizeof(line), pipe.get())) return {};
  std::string text(line, std::strcspn(line, " \n"));
  if (text.empty() || text.starts_with("?") || text.ends_with(":?")) return {};
  return fmt::format(" at {}", text.substr(text.rfind('/') + 1));
}

}  // namespace lab::emulation
