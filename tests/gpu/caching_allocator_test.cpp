// The allocator of GPU memory: reuse, sizes, the end of memory, and the memory of recordings.
#include "common/gpu/cuda/caching_allocator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "common/error.h"
#include "tests/gpu/cuda_test.h"

namespace lab::cuda {
namespace {

class CachingAllocatorTest : public test::CudaTest {
 protected:
  void SetUp() override {
    test::CudaTest::SetUp();
    if (!IsSkipped()) accelerator().synchronize();  // there is a GPU, and it is the current one
  }
};

TEST_F(CachingAllocatorTest, HandsOutReleasedMemoryAgain) {
  CachingAllocator allocator;
  void* first = allocator.allocate(1000);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(first) % 256, 0U);
  EXPECT_EQ(allocator.bytes_in_use(), 1024U);
  allocator.release(first);
  EXPECT_EQ(allocator.bytes_in_use(), 0U);
  EXPECT_EQ(allocator.bytes_kept(), 1024U);
  void* again = allocator.allocate(1010);  // of the same class of sizes
  EXPECT_EQ(again, first);
  void* other = allocator.allocate(1010);
  EXPECT_NE(other, first);
  allocator.release(again);
  allocator.release(other);
}

TEST_F(CachingAllocatorTest, WastesAtMostAnEighth) {
  CachingAllocator allocator;
  for (const size_t bytes : {size_t{1}, size_t{256}, size_t{257}, size_t{5000}, size_t{1} << 20,
                             (size_t{1} << 20) + 1, size_t{3'333'333}}) {
    void* memory = allocator.allocate(bytes);
    EXPECT_GE(allocator.bytes_in_use(), bytes);
    EXPECT_LE(allocator.bytes_in_use(), std::max(bytes + bytes / 8, bytes + 255)) << bytes;
    allocator.release(memory);
  }
}

TEST_F(CachingAllocatorTest, KeepsNothingWhenToldSo) {
  CachingAllocator allocator(CachingAllocator::Keep::kNone);
  void* memory = allocator.allocate(1000);
  EXPECT_EQ(allocator.bytes_in_use(), 1000U);
  allocator.release(memory);
  EXPECT_EQ(allocator.bytes_kept(), 0U);
}

TEST_F(CachingAllocatorTest, IgnoresTheReleaseOfNothing) {
  CachingAllocator allocator;
  allocator.release(nullptr);
  EXPECT_EQ(allocator.bytes_kept(), 0U);
}

TEST_F(CachingAllocatorTest, SaysHowMuchWasAskedForAndHowMuchThereIs) {
  CachingAllocator allocator;
  try {
    allocator.allocate(size_t{1} << 50);
    FAIL() << "a pebibyte was handed out";
  } catch (const Error& error) {
    const std::string message = error.what();
    EXPECT_NE(message.find("1024.0 TiB"), std::string::npos) << message;
    EXPECT_NE(message.find("are free"), std::string::npos) << message;
    EXPECT_NE(message.find("--batch"), std::string::npos) << message;
  }
  allocator.release(allocator.allocate(1000));  // goes on as before
}

TEST_F(CachingAllocatorTest, ReservesTheMemoryOfARecording) {
  CachingAllocator allocator;
  void* before = allocator.allocate(1000);
  auto recording = std::make_unique<RecordingMemory>(allocator);
  void* lasting = allocator.allocate(2000);
  void* passing = allocator.allocate(3000);
  allocator.release(passing);
  EXPECT_EQ(allocator.allocate(3000), passing) << "the recording may use its own memory again";
  allocator.release(passing);
  allocator.release(before);
  recording->close();

  EXPECT_EQ(allocator.bytes_kept(), 0U) << "nothing of the recording's is free for others";
  void* others = allocator.allocate(3000);
  EXPECT_NE(others, passing);
  allocator.release(lasting);
  EXPECT_NE(allocator.allocate(2000), lasting) << "repeating the recording will write to it";

  recording.reset();
  EXPECT_EQ(allocator.allocate(3000), passing);
  EXPECT_EQ(allocator.allocate(2000), lasting);
  EXPECT_EQ(allocator.allocate(1000), before);
}

TEST_F(CachingAllocatorTest, TakesKeptMemoryIntoARecording) {
  CachingAllocator allocator;
  void* memory = allocator.allocate(1000);
  allocator.release(memory);
  RecordingMemory recording(allocator);
  EXPECT_EQ(allocator.allocate(1000), memory);
}

}  // namespace
}  // namespace lab::cuda
