// Barriers of a block: which threads wait, which are released, and why none is.
#include <fmt/format.h>

#include <algorithm>

#include "block.h"
#include "emulated/barriers.h"
#include "emulation.h"
#include "places.h"

namespace lab::emulation {

int Block::wait_at_barrier(BarrierKind kind, int value, SourceLocation where) {
  Thread& thread = *current_thread;
  thread.state = Thread::State::kAtBarrier;
  thread.barrier = kind;
  thread.barrier_value = value;
  thread.where = where;
  fibers_.pause();
  return static_cast<int>(thread.result);
}

void Block::release_barrier() {
  const Thread& first = threads_.front();
  const bool all_here = std::all_of(threads_.begin(), threads_.end(), [&](const Thread& thread) {
    return thread.state == Thread::State::kAtBarrier && thread.barrier == first.barrier &&
           same_place(thread.where, first.where);
  });
  if (!all_here) {
    const std::string why = fmt::format("{}, {}", name(), why_nobody_runs());
    failure_ = why;
    abandon();
  }
  int count = 0;
  for (const Thread& thread : threads_) count += thread.barrier_value != 0;
  int result = count;
  if (first.barrier == BarrierKind::kOr) result = count > 0;
  if (first.barrier == BarrierKind::kAnd) result = count == static_cast<int>(threads_.size());
  for (Thread& thread : threads_) {
    thread.result = static_cast<uint64_t>(result);
    thread.state = Thread::State::kRuns;
  }
  pass_barrier();
}

std::string Block::what_it_does(const Thread& thread) const {
  switch (thread.state) {
    case Thread::State::kAtBarrier:
      return fmt::format("waits in __syncthreads at {}", place(thread.where));
    case Thread::State::kInWarp:
      return fmt::format("waits in {} with mask {:#010x} at {}", name_of(thread.request.operation),
                         thread.request.mask, place(thread.request.where));
    case Thread::State::kLeft:
      return "has left the kernel";
    case Thread::State::kRuns:
      break;
  }
  return "runs";
}

std::string Block::why_nobody_runs() const {
  for (const Thread& thread : threads_) {
    if (thread.state == Thread::State::kInWarp) return why_warp_waits(thread);
  }
  const auto waits = std::find_if(threads_.begin(), threads_.end(), [](const Thread& thread) {
    return thread.state == Thread::State::kAtBarrier;
  });
  const auto differs = std::find_if(threads_.begin(), threads_.end(), [&](const Thread& thread) {
    return thread.state != Thread::State::kAtBarrier || thread.barrier != waits->barrier ||
           !same_place(thread.where, waits->where);
  });
  return fmt::format(
      "{}: {}, but {} {}: divergent barrier; every thread of a block must reach the same "
      "__syncthreads",
      name(*waits), what_it_does(*waits), name(*differs), what_it_does(*differs));
}

}  // namespace lab::emulation

using lab::emulation::BarrierKind;
using lab::emulation::Block;

void __syncthreads(lab::emulation::SourceLocation where) {
  Block::instance().wait_at_barrier(BarrierKind::kPlain, 0, where);
}

int __syncthreads_or(int value, lab::emulation::SourceLocation where) {
  return Block::instance().wait_at_barrier(BarrierKind::kOr, value, where);
}

int __syncthreads_and(int value, lab::emulation::SourceLocation where) {
  return Block::instance().wait_at_barrier(BarrierKind::kAnd, value, where);
}

int __syncthreads_count(int value, lab::emulation::SourceLocation where) {
  return Block::instance().wait_at_barrier(BarrierKind::kCount, value, where);
}
