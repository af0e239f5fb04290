#include "fiber_pool.h"

#include <sys/mman.h>

#include <new>
#include <utility>

namespace lab::emulation {
namespace {

constexpr size_t kGuardBytes = 4096;

/// A stack whose lowest page faults: a kernel that uses too much does not write elsewhere.
uintptr_t map_stack() {
  void* memory = mmap(nullptr, kGuardBytes + FiberPool::kStackBytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  mprotect(memory, kGuardBytes, PROT_NONE);
  return reinterpret_cast<uintptr_t>(memory) + kGuardBytes;
}

/// The pool owns the stacks, so that an abandoned fiber's can be used again.
struct KeepStack {
  boost::context::stack_context allocate();
  void deallocate(boost::context::stack_context&) {}
};

}  // namespace

void FiberPool::make_fiber(Slot& slot) {
  boost::context::stack_context stack;
  stack.size = kStackBytes;
  stack.sp = reinterpret_cast<void*>(slot.stack + kStackBytes);
  slot.fiber = boost::context::fiber(std::allocator_arg,
                                     boost::context::preallocated(stack.sp, stack.size, stack),
                                     KeepStack(), [this](boost::context::fiber&& caller) {
                                       caller_ = std::move(caller);
                                       for (;;) {
                                         body_();
                                         pause();
                                       }
                                       return std::move(caller_);
                                     });
}

void FiberPool::grow(size_t count) {
  while (slots_.size() < count) {
    slots_.push_back(std::make_unique<Slot>());
    slots_.back()->stack = map_stack();
    make_fiber(*slots_.back());
  }
}

void FiberPool::resume(size_t index) {
  Slot& slot = *slots_[index];
  slot.fiber = std::move(slot.fiber).resume();
}

void FiberPool::pause() { caller_ = std::move(caller_).resume(); }

void FiberPool::abandon(size_t index) {
  abandoned_.push_back(std::move(slots_[index]->fiber));
  make_fiber(*slots_[index]);
}

}  // namespace lab::emulation
