// The rules of shadow memory, inline because every access of every thread runs through them.
#pragma once

#include "block.h"
#include "shadow.h"

namespace lab::emulation {

/// Whether nothing orders the recorded access before what `thread` does now. Only called for
/// accesses of this launch.
template <Space space>
bool is_concurrent(Record record, const Thread& thread) {
  const uint32_t phase = phase_of(record);
  if (phase == clock_now.now) {
    const uint32_t other = thread_of(record);
    if (other == thread.index) return false;
    if (other / 32 != thread.index / 32) return true;
    const uint32_t barriers = warp_barriers_of(record);
    return barriers < kMostWarpBarriers && barriers >= thread.seen[other % 32];
  }
  if (phase >= clock_now.block) return false;  // a barrier lies between
  return space == Space::kDevice && !clock_now.fenced;
}

template <Space space, bool atomic>
bool collides(Record record, uint32_t bytes, const Thread& thread) {
  if (phase_of(record) < clock_now.launch) return false;
  if ((bytes_of(record) & bytes) == 0 || (atomic && is_atomic(record))) return false;
  return is_concurrent<space>(record, thread);
}

/// A record of the same moment takes in further bytes; another one is replaced.
inline Record joined(Record old, Record now) {
  return ((old ^ now) & ~Record{0xff}) == 0 ? old | now : now;
}

inline void take_down_read(Cell& cell, Record now) {
  const bool same_thread = (cell.read ^ now) >> 22 == 0;
  Record& slot = same_thread || phase_of(cell.read) != clock_now.now ? cell.read : cell.other_read;
  slot = joined(slot, now);
}

template <Space space, Use use>
inline Judgement touch(Cell& cell, uint32_t bytes, const Thread& thread) {
  constexpr bool kAtomic = use == Use::kAtomic;
  const Record now =
      Record{clock_now.now} << 32 | thread.moment | (kAtomic ? 0x100U : 0U) | bytes << 4;
  uint32_t written = written_bytes(cell.write);
  if (space == Space::kShared && phase_of(cell.write) < clock_now.block) written = 0;
  if (use != Use::kWrite && (written & bytes) != bytes) return {Verdict::kNotWritten, cell.write};
  if (collides<space, kAtomic>(cell.write, bytes, thread)) {
    return {Verdict::kAfterWrite, cell.write};
  }
  if (use == Use::kRead) {
    take_down_read(cell, now);
    return {};
  }
  for (const Record read : {cell.read, cell.other_read}) {
    if (collides<space, kAtomic>(read, bytes, thread)) return {Verdict::kAfterRead, read};
  }
  cell.write = (joined(cell.write, now) & ~Record{15}) | written | bytes;
  return {};
}

}  // namespace lab::emulation
