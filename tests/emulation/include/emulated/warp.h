// Shuffles, votes and instructions of the whole warp: all lanes of the mask meet, then each takes
// its result.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "emulated/source_location.h"

namespace lab::emulation {

enum class WarpOperation {
  kNone,
  kSync,
  kShuffle,
  kShuffleUp,
  kShuffleDown,
  kShuffleXor,
  kVote,
  // Instructions that all lanes must execute at the same place of the program (.aligned in PTX).
  kMultiply,
  kLoadMatrices,
  kLoadMatricesTransposed,
};
constexpr bool is_aligned(WarpOperation operation) { return operation >= WarpOperation::kMultiply; }

/// What a lane brings to a warp operation. `operand` is the lane, the offset or the pattern; an
/// aligned operation takes bytes instead of a value.
struct WarpRequest {
  WarpOperation operation = WarpOperation::kNone;
  uint32_t mask = 0;
  uint64_t value = 0;
  int operand = 0;
  int width = 32;
  SourceLocation where;
  const void* bytes = nullptr;
  size_t size = 0;
};

/// Waits for the other lanes. Returns the value of the lane asked for; of a vote, one bit a lane;
/// of an aligned operation, where the bytes of all lanes lie.
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

/// The most that a lane can bring to gather().
inline constexpr size_t kMostGathered = 32;

/// All 32 lanes meet in an aligned operation, each with a value. Returns the values of all, by
/// lane: they stay until the warp's next operation.
template <typename T>
const T* gather(WarpOperation operation, const T& value, SourceLocation where) {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= kMostGathered);
  return reinterpret_cast<const T*>(
      meet_in_warp({operation, ~0U, 0, 0, 32, where, &value, sizeof(T)}));
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
