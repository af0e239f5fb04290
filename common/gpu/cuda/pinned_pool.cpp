#include "common/gpu/cuda/pinned_pool.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <bit>

#include "common/gpu/cuda/byte_count.h"
#include "common/gpu/cuda/check.h"

namespace lab::cuda {

PinnedPool::~PinnedPool() {
  for (const auto& [memory, size] : sizes_) static_cast<void>(cudaFreeHost(memory));
}

void* PinnedPool::allocate(size_t bytes) {
  const size_t size = std::bit_ceil(std::max(bytes, size_t{4096}));
  const std::lock_guard lock(mutex_);
  std::vector<void*>& free = free_[size];
  if (!free.empty()) {
    void* memory = free.back();
    free.pop_back();
    return memory;
  }
  void* memory = nullptr;
  check(cudaMallocHost(&memory, size), "cudaMallocHost", "allocating {} of pinned host memory",
        byte_count(size));
  sizes_[memory] = size;
  return memory;
}

void PinnedPool::release(void* memory) noexcept {
  const std::lock_guard lock(mutex_);
  given_back_.push_back(memory);
}

void PinnedPool::gpu_is_idle() {
  const std::lock_guard lock(mutex_);
  for (void* memory : given_back_) free_[sizes_.at(memory)].push_back(memory);
  given_back_.clear();
}

}  // namespace lab::cuda
