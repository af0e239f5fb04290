// Pinned host memory that is used again.
#pragma once

#include <cstddef>
#include <map>
#include <mutex>
#include <vector>

namespace lab::cuda {

/// Pinning memory takes the operating system longer than most messages need for their way. Blocks
/// come in powers of two. One that is given back may still be read or written by copies that were
/// asked for: it is used again after the GPU has been waited for.
class PinnedPool {
 public:
  PinnedPool() = default;
  ~PinnedPool();
  PinnedPool(const PinnedPool&) = delete;
  PinnedPool& operator=(const PinnedPool&) = delete;

  /// Throws Error when the system has no memory left to pin.
  void* allocate(size_t bytes);
  void release(void* memory) noexcept;
  /// The GPU has done all that was asked of it.
  void gpu_is_idle();

 private:
  std::mutex mutex_;
  std::map<void*, size_t> sizes_;              // of all blocks
  std::map<size_t, std::vector<void*>> free_;  // by size
  std::vector<void*> given_back_;              // since the GPU was last waited for
};

}  // namespace lab::cuda
