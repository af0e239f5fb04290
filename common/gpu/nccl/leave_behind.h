// Work that may never finish and must not keep a process waiting forever.
#pragma once

#include <chrono>
#include <functional>

namespace lab::nccl {

/// Runs `work` in a new thread and waits for it, at most for `patience`. After that the thread
/// continues; if the process ends in the meantime, it skips the destructors of CUDA and NCCL, which
/// might wait for that thread. Exceptions of `work` are lost.
void run_or_leave_behind(std::function<void()> work, std::chrono::milliseconds patience) noexcept;

/// How many pieces of work were left behind so far, whether or not they have finished since.
int left_behind();

}  // namespace lab::nccl
