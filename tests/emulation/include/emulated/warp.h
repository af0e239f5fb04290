// Shuffles and votes: all lanes of the mask meet, then each takes its result.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "emulated/source_location.h"

namespace lab::emulation {

enum class WarpOperation { kNone, kSync, kShuffle, kShuffleUp, kShuffleDown, kShuffleXor, kVote };

/// What a lane brings to a warp operation. `operand` is the lane, the offset or the pattern.
struct WarpRequest {
  WarpOperation operation = WarpOperation::kNone;
  uint32_t mask = 0;
  uint64_t value = 0;
  int operand = 0;
  int width = 32;
  SourceLocation where;
};

/// Waits for the other lanes. Returns the value of the lane asked for; of a vote, one bit a lane.
uint64_t meet_in_warp(const WarpRequest& request);

template <typename T>
T shuffle(WarpOperation operation, uint32_t mask, T value, int operand, int width,
          SourceLocation where) {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= 8);
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(T));
  bits = meet_in_warp({operation, mask, bits, operand, width, where});
  std::memcpy(&value, &bits, sizeof(T));
  return value;
}

inline uint32_t vote(uint32_t mask, bool value, SourceLocation where) {
  return static_cast<uint32_t>(meet_in_warp({WarpOperation::kVote, mask, value, 0, 32, where}));
}

}  // namespace lab::emulation

template <typename T>
T __shfl_sync(unsigned mask, T value, int lane, int width = 32,
              lab::emulation::SourceLocation where = lab::emulation::SourceLocation::current()) {
  return lab::emulation::shuffle(lab::emulation::WarpOperation::kShuffle, mask, value, lane, width,
                                 where);
}

template <typename T>
T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32,
                 lab::emulation::SourceLocation where = lab::emulation::SourceLocation::current()) {
  return lab::emulation::shuffle(lab::emulation::WarpOperation::kShuffleUp, mask, value,
                                 static_cast<int>(delta), width, where);
}

template <typename T>
T __shfl_down_sync(
    unsigned mask, T value, unsigned delta, int width = 32,
    lab::emulation::SourceLocation where = lab::emulation::SourceLocation::current()) {
  return lab::emulation::shuffle(lab::emulation::WarpOperation::kShuffleDown, mask, value,
                                 static_cast<int>(delta), width, where);
}

template <typename T>
T __shfl_xor_sync(
    unsigned mask, T value, int pattern, int width = 32,
    lab::emulation::SourceLocation where = lab::emulation::SourceLocation::current()) {
  return lab::emulation::shuffle(lab::emulation::WarpOperation::kShuffleXor, mask, value, pattern,
                                 width, where);
}

inline unsigned __ballot_sync(
    unsigned mask, int value,
    lab::emulation::SourceLocation where = lab::emulation::SourceLocation::current()) {
  return lab::emulation::vote(mask, value != 0, where);
}

inline int __any_sync(
    unsigned mask, int value,
    lab::emulation::SourceLocation where = lab::emulation::SourceLocation::current()) {
  return lab::emulation::vote(mask, value != 0, where) != 0;
}

inline int __all_sync(
    unsigned mask, int value,
    lab::emulation::SourceLocation where = lab::emulation::SourceLocation::current()) {
  return lab::emulation::vote(mask, value != 0, where) == mask;
}
