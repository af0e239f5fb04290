// Fibers: one for each thread of a block, kept from block to block.
#pragma once

#include <boost/context/fiber.hpp>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

namespace lab::emulation {

/// Fibers that run one body again and again: each resume() goes on where the fiber stopped last,
/// and at the start of the body once that has ended. Stacks are mapped once and never given back.
class FiberPool {
 public:
  static constexpr size_t kStackBytes = 256 * 1024;

  explicit FiberPool(std::function<void()> body) : body_(std::move(body)) {}

  /// Makes fibers 0 .. count - 1 exist.
  void grow(size_t count);
  /// Runs fiber `index` until it calls pause() or its body ends.
  void resume(size_t index);
  /// Called in the fiber that runs: goes back to the caller of resume().
  void pause();
  /// Forgets where the fiber stopped: the next resume() starts the body anew. What lived on its
  /// stack is not destroyed: unwinding would throw through instrumented code, which cannot be.
  void abandon(size_t index);

  /// The lowest address of its stack.
  uintptr_t stack(size_t index) const { return slots_[index]->stack; }

 private:
  struct Slot {
    boost::context::fiber fiber;
    uintptr_t stack = 0;
  };

  void make_fiber(Slot& slot);

  std::function<void()> body_;
  std::vector<std::unique_ptr<Slot>> slots_;
  boost::context::fiber caller_;
  std::vector<boost::context::fiber> abandoned_;
};

}  // namespace lab::emulation
