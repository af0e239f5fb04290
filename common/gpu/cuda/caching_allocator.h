// GPU memory without a call to the driver for each tensor: released memory is kept and reused for
// the next request of about that size.
#pragma once

#include <cstddef>
#include <map>
#include <mutex>
#include <unordered_map>
#include <vector>

namespace lab::cuda {

/// The driver's cudaMalloc is slow, and its cudaFree waits for the GPU. A training step requests
/// the same sizes each time, so after the first step this allocator serves everything from what it
/// keeps.
///
/// One stream: a block may be handed out while kernels launched before its release still use it,
/// since whatever its new owner launches comes after them. Work on another stream must be waited
/// for before its memory is released.
///
/// Sizes are rounded up, by at most an eighth or to 256 bytes, so that similar requests share
/// blocks. When the GPU is full, everything kept is returned to the driver and the request is
/// repeated.
///
/// Methods may be called from several threads.
class CachingAllocator {
 public:
  /// kNone passes every call to the driver, with the exact size: slow, but memory checkers then see
  /// each access outside a tensor.
  enum class Keep { kReleased, kNone };

  explicit CachingAllocator(Keep keep = Keep::kReleased) : keep_(keep) {}
  /// Returns all released memory to the driver; what is in use stays.
  ~CachingAllocator();
  CachingAllocator(const CachingAllocator&) = delete;
  CachingAllocator& operator=(const CachingAllocator&) = delete;

  /// Starts at a multiple of 256 bytes. Throws Error if memory runs out, saying how much was
  /// requested and how much is left.
  void* allocate(size_t bytes);
  void release(void* memory) noexcept;

  /// Bytes obtained from the driver: in use, and kept for reuse.
  size_t bytes_in_use() const;
  size_t bytes_kept() const;

 private:
  friend class RecordingMemory;

  /// Released blocks by size.
  using Kept = std::map<size_t, std::vector<void*>>;
  struct InUse {
    size_t bytes;
    Kept* home;  // where it goes on release
  };

  void* take(Kept& kept, size_t bytes);
  void* ask_driver(size_t bytes);
  void give_back(Kept& kept) noexcept;

  Keep keep_;
  mutable std::mutex mutex_;
  Kept kept_;
  Kept* recording_ = nullptr;
  std::unordered_map<void*, InUse> in_use_;
};

/// The memory of one recording (see RecordedWork): while `open`, all requests are served from here
/// and all released memory stays here. Repeating the recording uses the same addresses again, so
/// they are not handed out elsewhere until this object is destroyed.
class RecordingMemory {
 public:
  explicit RecordingMemory(CachingAllocator& allocator);
  ~RecordingMemory();
  RecordingMemory(const RecordingMemory&) = delete;
  RecordingMemory& operator=(const RecordingMemory&) = delete;

  /// Recording lasts from the constructor to this call.
  void close();

 private:
  CachingAllocator& allocator_;
  CachingAllocator::Kept kept_;
};

}  // namespace lab::cuda
