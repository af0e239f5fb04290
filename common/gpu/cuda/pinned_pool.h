// Pinned host memory that is reused.
#pragma once

#include <cstddef>
#include <map>
#include <mutex>
#include <vector>

namespace lab::cuda {

/// Pinning memory takes the operating system longer than most messages take to arrive. Blocks come
/// in powers of two. A released block may still be read or written by copies that were launched: it
/// is reused only after the GPU has been waited for.
class PinnedPool {
 public:
  PinnedPool() = default;
  ~PinnedPool();
  PinnedPool(const PinnedPool&) = delete;
  PinnedPool& operator=(const PinnedPool&) = delete;

  /// Throws Error if the system has no memory left to pin.
  void* allocate(size_t bytes);
  void release(void* memory) noexcept;
  /// Call it when the GPU has finished all launched work.
  void gpu_is_idle();

 private:
  std::mutex mutex_;
  std::map<void*, size_t> sizes_;              // of all blocks
  std::map<size_t, std::vector<void*>> free_;  // by size
  std::vector<void*> given_back_;              // released since the GPU was last waited for
};

}  // namespace lab::cuda
