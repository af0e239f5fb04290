// One block of a kernel: its threads are fibers, of which one runs at a time.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "emulated/kernel_call.h"
#include "emulated/source_location.h"
#include "emulated/warp.h"
#include "emulation.h"
#include "fiber_pool.h"
#include "shadow.h"

namespace lab::emulation {

enum class BarrierKind { kPlain, kOr, kAnd, kCount };

struct Thread {
  enum class State { kRuns, kAtBarrier, kInWarp, kLeft };

  unsigned index = 0;  // in the block; lane index % 32 of warp index / 32
  uint3 position{};
  uintptr_t stack = 0;  // the lowest address of its stack
  State state = State::kRuns;

  // Where it waits, and what for.
  SourceLocation where;
  BarrierKind barrier = BarrierKind::kPlain;
  int barrier_value = 0;
  WarpRequest request;
  uint64_t result = 0;

  size_t bytes_read = 0;  // of device and shared memory, each time anew
  size_t device_bytes_read = 0;
  size_t device_bytes_written = 0;

  // For shadow.h: the thread and its count of warp barriers as in a record, and for each lane of
  // the warp, how many of its warp barriers it is known to have passed.
  uint32_t moment = 0;
  std::array<uint16_t, 32> seen{};

  void begin_phase() {
    moment = index << 22;
    seen = {};
  }
  void pass_warp_barrier() {
    const uint32_t barriers = std::min(kMostWarpBarriers, (moment >> 10 & 4095U) + 1);
    moment = index << 22 | barriers << 10;
    seen[index % 32] = static_cast<uint16_t>(barriers);
  }
};

/// Runs the blocks of one launch, one after the other. There is one per process: running a kernel
/// holds the lock of the runtime.
class Block {
 public:
  static Block& instance();

  /// Runs the block at `index`. Throws KernelError.
  void run(KernelCall& call, uint3 index);
  /// Adds what the threads of the block that ran last have read and written.
  void count(Statistics& statistics) const;

  // What threads call, through the functions of the language.
  int wait_at_barrier(BarrierKind kind, int value, SourceLocation where);
  uint64_t meet_in_warp(const WarpRequest& request);
  /// Ends the kernel with this message; the thread that runs does not go on. Its stack is not
  /// unwound: the caller must own nothing but what it moves in.
  [[noreturn]] void fail(std::string what);

  KernelCall& call() const { return *call_; }
  const std::vector<Thread>& threads() const { return threads_; }
  /// "thread (3,0,0)".
  std::string name(const Thread& thread) const;
  /// "kernel scale, block (1,0,0)".
  std::string name() const;

 private:
  Block();
  void start();
  void run_threads();
  void abandon();
  void release_barrier();
  /// What was done before a barrier is ordered before what is done after it.
  void pass_barrier();
  void pass_warp_barrier(Thread* warp, uint32_t mask);
  bool warp_is_complete(const Thread& thread) const;
  void finish_warp(const Thread& last);
  void gather(Thread* warp);
  std::string why_nobody_runs() const;
  std::string why_warp_waits(const Thread& thread) const;
  std::string what_it_does(const Thread& thread) const;

  FiberPool fibers_;
  KernelCall* call_ = nullptr;
  std::vector<Thread> threads_;
  std::vector<unsigned> order_;
  std::array<uint32_t, 32> in_warp_{};  // for each warp, the lanes in State::kInWarp
  struct alignas(16) Gathered {
    std::array<std::byte, 32 * kMostGathered> bytes;
  };
  std::array<Gathered, 32> gathered_;  // for each warp, what its lanes brought last
  unsigned left_ = 0;                  // threads that have ended
  bool warp_barriers_passed_ = false;  // since the last barrier
  std::optional<std::string> failure_;
};

/// The thread of a kernel that runs on this thread of the process; null in host code.
extern thread_local constinit Thread* current_thread;

}  // namespace lab::emulation
