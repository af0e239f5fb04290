// Operations of a warp: the last lane to come works out the results of all.
#include "emulated/warp.h"

#include <fmt/format.h>

#include <cstring>
#include <string>
#include <utility>

#include "block.h"
#include "emulated/barriers.h"
#include "places.h"

namespace lab::emulation {
namespace {

/// The lane whose value `lane` gets, by the rules of PTX: out of its segment means its own.
int source_lane(const WarpRequest& request, int lane) {
  const int first = lane & ~(request.width - 1);
  const int last = first + request.width - 1;
  switch (request.operation) {
    case WarpOperation::kShuffle:
      return first + (request.operand & (request.width - 1));
    case WarpOperation::kShuffleUp:
      return lane - request.operand < first ? lane : lane - request.operand;
    case WarpOperation::kShuffleDown:
      return lane + request.operand > last ? lane : lane + request.operand;
    case WarpOperation::kShuffleXor:
      return (lane ^ request.operand) > last ? lane : lane ^ request.operand;
    default:
      return lane;
  }
}

bool has(uint32_t mask, unsigned lane) { return (mask >> lane & 1U) != 0; }

}  // namespace

bool Block::warp_is_complete(const Thread& thread) const {
  const uint32_t mask = thread.request.mask;
  if ((in_warp_[thread.index / 32] & mask) != mask) return false;
  const Thread* warp = &threads_[thread.index & ~31U];
  for (unsigned lane = 0; lane < 32; ++lane) {
    if (has(mask, lane) && warp[lane].request.mask != mask) return false;
  }
  return true;
}

uint64_t Block::meet_in_warp(const WarpRequest& request) {
  Thread& thread = *current_thread;
  const unsigned lane = thread.index % 32;
  if (!has(request.mask, lane)) {
    std::string what =
        fmt::format("calls {} at {} with mask {:#010x}, which does not name its own lane, {}",
                    name_of(request.operation), place(request.where), request.mask, lane);
    fail(std::move(what));
  }
  if (request.width < 1 || request.width > 32 || (request.width & (request.width - 1)) != 0) {
    std::string what = fmt::format("calls {} at {} with width {}: must be a power of two up to 32",
                                   name_of(request.operation), place(request.where), request.width);
    fail(std::move(what));
  }
  thread.request = request;
  thread.state = Thread::State::kInWarp;
  in_warp_[thread.index / 32] |= 1U << lane;
  if (warp_is_complete(thread)) {
    finish_warp(thread);
  } else {
    fibers_.pause();
  }
  return thread.result;
}

void Block::finish_warp(const Thread& last) {
  const uint32_t mask = last.request.mask;
  Thread* warp = &threads_[last.index & ~31U];
  uint64_t votes = 0;
  for (unsigned lane = 0; lane < 32; ++lane) {
    if (!has(mask, lane)) continue;
    const WarpRequest& request = warp[lane].request;
    if (request.operation != last.request.operation ||
        (is_aligned(request.operation) && !same_place(request.where, last.request.where))) {
      std::string what = fmt::format("{}, but {} of its warp {}", what_it_does(last),
                                     name(warp[lane]), what_it_does(warp[lane]));
      fail(std::move(what));
    }
    votes |= (request.value != 0 ? uint64_t{1} : 0) << lane;
  }
  if (is_aligned(last.request.operation)) gather(warp);
  for (unsigned lane = 0; lane < 32; ++lane) {
    if (!has(mask, lane) || is_aligned(last.request.operation)) continue;
    Thread& thread = warp[lane];
    const int source = source_lane(thread.request, static_cast<int>(lane));
    if (!has(mask, static_cast<unsigned>(source))) {
      std::string what = fmt::format(
          "{} at {} reads lane {} for lane {}, but mask {:#010x} does not name lane {}",
          name_of(last.request.operation), place(thread.request.where), source, lane, mask, source);
      fail(std::move(what));
    }
    thread.result =
        last.request.operation == WarpOperation::kVote ? votes : warp[source].request.value;
  }
  for (unsigned lane = 0; lane < 32; ++lane) {
    if (has(mask, lane)) warp[lane].state = Thread::State::kRuns;
  }
  in_warp_[last.index / 32] &= ~mask;
  if (last.request.operation == WarpOperation::kSync) pass_warp_barrier(warp, mask);
}

void Block::gather(Thread* warp) {
  std::byte* all = gathered_[warp->index / 32].bytes.data();
  for (unsigned lane = 0; lane < 32; ++lane) {
    const WarpRequest& request = warp[lane].request;
    std::memcpy(all + lane * request.size, request.bytes, request.size);
    warp[lane].result = reinterpret_cast<uintptr_t>(all);
  }
}

std::string Block::why_warp_waits(const Thread& thread) const {
  const unsigned first = thread.index & ~31U;
  for (unsigned lane = 0; lane < 32; ++lane) {
    if (!has(thread.request.mask, lane)) continue;
    if (first + lane >= threads_.size()) {
      return fmt::format("{}: {}, but the block has only {} threads: lane {} does not exist",
                         name(thread), what_it_does(thread), threads_.size(), lane);
    }
    const Thread& other = threads_[first + lane];
    if (other.state != Thread::State::kInWarp || other.request.mask != thread.request.mask) {
      return fmt::format("{}: {}, but lane {}, {}, {}", name(thread), what_it_does(thread), lane,
                         name(other), what_it_does(other));
    }
  }
  return fmt::format("{} waits", name(thread));
}

uint64_t meet_in_warp(const WarpRequest& request) {
  return Block::instance().meet_in_warp(request);
}

}  // namespace lab::emulation

void __syncwarp(unsigned mask, lab::emulation::SourceLocation where) {
  using lab::emulation::WarpOperation;
  lab::emulation::meet_in_warp({WarpOperation::kSync, mask, 0, 0, 32, where});
}
