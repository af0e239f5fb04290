// See block.h: how the threads of a block take turns.
#include "block.h"

#include <fmt/format.h>

#include <utility>

#include "emulated/language.h"
#include "order.h"
#include "symbols.h"

namespace lab::emulation {

constinit Coordinates coordinates{};
thread_local constinit Thread* current_thread = nullptr;

Block::Block()
    : fibers_([this] {
        call_->run_thread();
        current_thread->state = Thread::State::kLeft;
      }) {}

Block& Block::instance() {
  static Block& block = *new Block;  // never destroyed: fibers may have stopped in the middle
  return block;
}

void Block::run(KernelCall& call, uint3 index) {
  call_ = &call;
  coordinates.block = index;
  coordinates.block_size = call.block;
  coordinates.grid_size = call.grid;
  start();
  run_threads();
}

void Block::count(Statistics& statistics) const {
  for (const Thread& thread : threads_) {
    statistics.most_bytes_read = std::max(statistics.most_bytes_read, thread.bytes_read);
    statistics.most_bytes_written =
        std::max(statistics.most_bytes_written, thread.device_bytes_written);
    statistics.device_bytes_read += thread.device_bytes_read;
    statistics.device_bytes_written += thread.device_bytes_written;
  }
}

void Block::start() {
  const dim3 size = call_->block;
  const unsigned count = size.x * size.y * size.z;
  fibers_.grow(count);
  threads_.resize(count);
  for (unsigned i = 0; i < count; ++i) {
    threads_[i].index = i;
    threads_[i].position = {i % size.x, i / size.x % size.y, i / size.x / size.y};
    threads_[i].stack = fibers_.stack(i);
    threads_[i].state = Thread::State::kRuns;
    threads_[i].bytes_read = 0;
    threads_[i].device_bytes_read = 0;
    threads_[i].device_bytes_written = 0;
    threads_[i].begin_phase();
  }
  const uint3 b = coordinates.block;
  fill_order(order_, count, b.x + uint64_t{b.y} * 1000003 + uint64_t{b.z} * 1000000007);
  in_warp_ = {};
  left_ = 0;
  warp_barriers_passed_ = false;
  failure_.reset();
}

void Block::run_threads() {
  while (left_ < threads_.size()) {
    bool anybody_ran = false;
    for (const unsigned i : order_) {
      Thread& thread = threads_[i];
      if (thread.state != Thread::State::kRuns) continue;
      coordinates.thread = thread.position;
      current_thread = &thread;
      fibers_.resume(i);
      current_thread = nullptr;
      anybody_ran = true;
      if (failure_) abandon();
      if (thread.state == Thread::State::kLeft) ++left_;
    }
    if (!anybody_ran) release_barrier();
  }
}

void Block::abandon() {
  for (const Thread& thread : threads_) {
    if (thread.state != Thread::State::kLeft) fibers_.abandon(thread.index);
  }
  throw KernelError(*std::exchange(failure_, std::nullopt));
}

void Block::fail(std::string what) {
  failure_ = fmt::format("{}, {}: {}", name(), name(*current_thread), what);
  std::string().swap(what);  // this stack is never unwound
  for (;;) fibers_.pause();
}

std::string Block::name(const Thread& thread) const {
  const uint3 p = thread.position;
  return fmt::format("thread ({},{},{})", p.x, p.y, p.z);
}

std::string Block::name() const {
  const Symbol* symbol =
      find_symbol(symbols().functions, reinterpret_cast<uintptr_t>(call_->function));
  const uint3 b = coordinates.block;
  return fmt::format("kernel {}, block ({},{},{})",
                     symbol ? readable_function(symbol->name) : "of unknown name", b.x, b.y, b.z);
}

}  // namespace lab::emulation
