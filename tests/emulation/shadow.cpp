// See shadow.h: the clock, and the shadow of device memory as the host changes it.
#include "shadow.h"

#include <sys/mman.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "block.h"
#include "device_memory.h"
#include "emulated/barriers.h"

namespace lab::emulation {
namespace {

/// The first phase of each block of the launch, ascending.
std::vector<std::pair<uint32_t, uint3>>& blocks() {
  static std::vector<std::pair<uint32_t, uint3>> list;
  return list;
}

/// Calls f(cell, bytes of the word) for each word that the range touches.
template <typename F>
void for_each_word(const void* address, size_t bytes, F f) {
  const auto begin = reinterpret_cast<uintptr_t>(address);
  for (uintptr_t at = begin; at < begin + bytes;) {
    const size_t first = at % 4;
    const size_t count = std::min<size_t>(4 - first, begin + bytes - at);
    f(*device_cell(at), ((1U << count) - 1) << first);
    at += count;
  }
}

bool is_written(uintptr_t address) {
  return (written_bytes(device_cell(address)->write) >> address % 4 & 1U) != 0;
}

}  // namespace

Clock clock_now;
Cell* device_cells = nullptr;

Cell* device_cell(uintptr_t address) {
  const DeviceMemory& memory = DeviceMemory::instance();
  return device_cells + (address - memory.base()) / 4;
}

void start_launch() {
  clock_now.launch = clock_now.now + 1;
  blocks().clear();
}

void start_block(uint3 index) {
  clock_now.block = ++clock_now.now;
  clock_now.fenced = false;
  blocks().emplace_back(clock_now.now, index);
}

uint3 block_in_phase(uint32_t phase) {
  const auto after =
      std::upper_bound(blocks().begin(), blocks().end(), phase,
                       [](uint32_t p, const auto& block) { return p < block.first; });
  return after == blocks().begin() ? uint3{} : std::prev(after)->second;
}

void mark_written(const void* address, size_t bytes) {
  for_each_word(address, bytes,
                [](Cell& cell, uint32_t mask) { cell.write = written_bytes(cell.write) | mask; });
}

void copy_written(const void* to, const void* from, size_t bytes) {
  const auto source = reinterpret_cast<uintptr_t>(from);
  const auto target = reinterpret_cast<uintptr_t>(to);
  for (size_t i = 0; i < bytes; ++i) {
    Cell& cell = *device_cell(target + i);
    const uint32_t mask = 1U << (target + i) % 4;
    const uint32_t others = written_bytes(cell.write) & ~mask;
    cell.write = others | (is_written(source + i) ? mask : 0U);
  }
}

void forget_written(const void* address, size_t bytes) {
  const auto begin = reinterpret_cast<uintptr_t>(device_cell(reinterpret_cast<uintptr_t>(address)));
  const uintptr_t end = begin + (bytes + 3) / 4 * sizeof(Cell);
  const uintptr_t first_page = (begin + 4095) & ~uintptr_t{4095};
  const uintptr_t last_page = end & ~uintptr_t{4095};
  if (first_page >= last_page) {
    std::fill(reinterpret_cast<char*>(begin), reinterpret_cast<char*>(end), '\0');
    return;
  }
  std::fill(reinterpret_cast<char*>(begin), reinterpret_cast<char*>(first_page), '\0');
  madvise(reinterpret_cast<void*>(first_page), last_page - first_page, MADV_DONTNEED);
  std::fill(reinterpret_cast<char*>(last_page), reinterpret_cast<char*>(end), '\0');
}

const void* find_unwritten(const void* address, size_t bytes) {
  const auto begin = reinterpret_cast<uintptr_t>(address);
  for (uintptr_t at = begin; at < begin + bytes;) {
    if (at % 4 == 0 && begin + bytes - at >= 4 && written_bytes(device_cell(at)->write) == 15) {
      at += 4;
    } else if (is_written(at)) {
      ++at;
    } else {
      return reinterpret_cast<const void*>(at);
    }
  }
  return nullptr;
}

void Block::pass_barrier() {
  ++clock_now.now;
  if (!std::exchange(warp_barriers_passed_, false)) return;
  for (Thread& thread : threads_) thread.begin_phase();
}

void Block::pass_warp_barrier(Thread* warp, uint32_t mask) {
  warp_barriers_passed_ = true;
  std::array<uint16_t, 32> seen{};
  for (unsigned lane = 0; lane < 32; ++lane) {
    if ((mask >> lane & 1U) == 0) continue;
    warp[lane].pass_warp_barrier();
    for (unsigned i = 0; i < 32; ++i) seen[i] = std::max(seen[i], warp[lane].seen[i]);
  }
  for (unsigned lane = 0; lane < 32; ++lane) {
    if ((mask >> lane & 1U) != 0) warp[lane].seen = seen;
  }
}

}  // namespace lab::emulation

void __threadfence() { lab::emulation::clock_now.fenced = true; }
void __threadfence_block() {}
