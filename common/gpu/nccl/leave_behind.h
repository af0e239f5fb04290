// Work that may never be done, and that no process shall wait for for ever.
#pragma once

#include <chrono>
#include <functional>

namespace lab::nccl {

/// Does `work` in a thread of its own and waits for it, at most for `patience`. If that was too
/// short, the thread goes on; when the process ends in the meantime, it ends without the
/// destructors of CUDA and NCCL, which might wait for that thread. What `work` throws is lost.
void run_or_leave_behind(std::function<void()> work, std::chrono::milliseconds patience) noexcept;

/// How many works were left behind so far, whether or not they have been done since.
int left_behind();

}  // namespace lab::nccl
