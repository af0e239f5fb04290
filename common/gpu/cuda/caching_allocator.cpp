// Size classes, reuse, and requests to the driver.
#include "common/gpu/cuda/caching_allocator.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <bit>

#include "common/gpu/cuda/byte_count.h"
#include "common/gpu/cuda/check.h"

namespace lab::cuda {
namespace {

/// Up to the next multiple of 256 bytes, or of an eighth of the next lower power of two.
size_t size_class(size_t bytes) {
  const size_t step = std::max<size_t>(256, std::bit_floor(std::max<size_t>(bytes, 1)) / 8);
  return std::max<size_t>(step, (bytes + step - 1) / step * step);
}

}  // namespace

CachingAllocator::~CachingAllocator() { give_back(kept_); }

void* CachingAllocator::allocate(size_t bytes) {
  const size_t size = keep_ == Keep::kNone ? std::max<size_t>(bytes, 1) : size_class(bytes);
  const std::lock_guard lock(mutex_);
  Kept& home = recording_ != nullptr ? *recording_ : kept_;
  void* memory = take(home, size);
  if (memory == nullptr && recording_ != nullptr) memory = take(kept_, size);
  if (memory == nullptr) memory = ask_driver(size);
  in_use_[memory] = {size, &home};
  return memory;
}

void CachingAllocator::release(void* memory) noexcept {
  const std::lock_guard lock(mutex_);
  const auto found = in_use_.find(memory);
  if (found == in_use_.end()) return;
  const auto [size, home] = found->second;
  in_use_.erase(found);
  Kept& target = recording_ != nullptr ? *recording_ : *home;
  if (keep_ == Keep::kNone && &target == &kept_)
    static_cast<void>(cudaFree(memory));
  else
    target[size].push_back(memory);
}

size_t CachingAllocator::bytes_in_use() const {
  const std::lock_guard lock(mutex_);
  size_t sum = 0;
  for (const auto& [memory, block] : in_use_) sum += block.bytes;
  return sum;
}

size_t CachingAllocator::bytes_kept() const {
  const std::lock_guard lock(mutex_);
  size_t sum = 0;
  for (const auto& [size, blocks] : kept_) sum += size * blocks.size();
  return sum;
}

void* CachingAllocator::take(Kept& kept, size_t bytes) {
  const auto found = kept.find(bytes);
  if (found == kept.end() || found->second.empty()) return nullptr;
  void* memory = found->second.back();
  found->second.pop_back();
  return memory;
}

void* CachingAllocator::ask_driver(size_t bytes) {
  void* memory = nullptr;
  cudaError_t status = cudaMalloc(&memory, bytes);
  if (status == cudaErrorMemoryAllocation && recording_ == nullptr) {
    static_cast<void>(cudaGetLastError());
    give_back(kept_);
    status = cudaMalloc(&memory, bytes);
  }
  check(status, "cudaMalloc", "allocating {} of GPU memory", byte_count(bytes));
  return memory;
}

void CachingAllocator::give_back(Kept& kept) noexcept {
  for (const auto& [size, blocks] : kept)
    for (void* memory : blocks) static_cast<void>(cudaFree(memory));  // waits for its last use
  kept.clear();
}

RecordingMemory::RecordingMemory(CachingAllocator& allocator) : allocator_(allocator) {
  const std::lock_guard lock(allocator_.mutex_);
  allocator_.recording_ = &kept_;
}

RecordingMemory::~RecordingMemory() {
  close();
  const std::lock_guard lock(allocator_.mutex_);
  for (auto& [memory, block] : allocator_.in_use_)
    if (block.home == &kept_) block.home = &allocator_.kept_;
  for (const auto& [size, blocks] : kept_) {
    auto& all = allocator_.kept_[size];
    all.insert(all.end(), blocks.begin(), blocks.end());
  }
}

void RecordingMemory::close() {
  const std::lock_guard lock(allocator_.mutex_);
  if (allocator_.recording_ == &kept_) allocator_.recording_ = nullptr;
}

}  // namespace lab::cuda
