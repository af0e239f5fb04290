// Shadow memory: what is known of each word of 4 bytes. Who wrote it last, who read it, and when;
// in the manner of FastTrack (Flanagan and Freund, 2009), made simpler by barriers: time is counted
// in phases, and a barrier of a block begins a new phase for all its threads.
#pragma once

#include <cstddef>
#include <cstdint>

#include "emulated/vector_types.h"

namespace lab::emulation {

struct Thread;

/// An access, packed into 64 bits.
///
///   63..32 phase     31..22 thread     21..10 warp barriers the thread had passed in this phase
///   8 atomic         7..4 which bytes of the word        3..0 which were ever written (writes
///   only)
using Record = uint64_t;

inline constexpr uint32_t kMostWarpBarriers = 4095;  // the count stops there

constexpr uint32_t phase_of(Record r) { return static_cast<uint32_t>(r >> 32); }
constexpr uint32_t thread_of(Record r) { return static_cast<uint32_t>(r >> 22) & 1023U; }
constexpr uint32_t warp_barriers_of(Record r) { return static_cast<uint32_t>(r >> 10) & 4095U; }
constexpr bool is_atomic(Record r) { return (r & 0x100U) != 0; }
constexpr uint32_t bytes_of(Record r) { return static_cast<uint32_t>(r >> 4) & 15U; }
constexpr uint32_t written_bytes(Record r) { return static_cast<uint32_t>(r) & 15U; }

/// Two readers are kept, always of different threads: the writer cannot be both of them.
struct Cell {
  Record write;
  Record read;
  Record other_read;
};

/// Phases are numbered through the whole life of the process: blocks run one after the other.
struct Clock {
  uint32_t launch = 1;  // the first phase of the launch
  uint32_t block = 1;   // and of the block
  uint32_t now = 1;
  bool fenced = false;  // a thread of the block has called __threadfence
};
extern Clock clock_now;

/// Which rules hold for a word.
enum class Space { kDevice, kShared };
enum class Use { kRead, kWrite, kAtomic };

/// Why an access is wrong.
enum class Verdict { kFine, kNotWritten, kAfterWrite, kAfterRead };
struct Judgement {
  Verdict verdict = Verdict::kFine;
  Record other = 0;  // the access that it collides with
};

/// Judges an access of the running thread to the bytes of one word, and takes it down.
template <Space space, Use use>
Judgement touch(Cell& cell, uint32_t bytes, const Thread& thread);

void start_launch();
void start_block(uint3 index);
/// The block whose threads ran in this phase of the launch that runs.
uint3 block_in_phase(uint32_t phase);

/// The cells of device memory: of the word at `address`, which must be there.
Cell* device_cell(uintptr_t address);
extern Cell* device_cells;

// From the host: bytes of device memory become initialised, take this over with a copy, or are
// forgotten since they were freed.
void mark_written(const void* address, size_t bytes);
void copy_written(const void* to, const void* from, size_t bytes);
void forget_written(const void* address, size_t bytes);
/// The first of the bytes that was never written, or null.
const void* find_unwritten(const void* address, size_t bytes);

}  // namespace lab::emulation
