// Copies to and from the GPU: ordinary and pinned memory, rows with gaps, more than a buffer holds.
#include <gtest/gtest.h>

#include <cstddef>
#include <vector>

#include "common/error.h"
#include "common/gpu/cuda/staged_copy.h"
#include "tests/gpu/cuda_test.h"

namespace lab {
namespace {

class CudaCopies : public test::CudaTest {};

std::vector<unsigned char> pattern(size_t bytes) {
  std::vector<unsigned char> data(bytes);
  for (size_t i = 0; i < bytes; ++i) data[i] = static_cast<unsigned char>(i * 7 + i / 251);
  return data;
}

struct GpuMemory {
  explicit GpuMemory(size_t bytes) : data(accelerator().allocate(bytes)) {}
  ~GpuMemory() { accelerator().release(data); }
  GpuMemory(const GpuMemory&) = delete;
  GpuMemory& operator=(const GpuMemory&) = delete;
  void* data;
};

TEST_F(CudaCopies, BringBackWhatWasSent) {
  constexpr size_t kBuffer = cuda::StagedCopy::kBufferBytes;
  for (const size_t bytes : {size_t{1}, size_t{1000}, kBuffer, kBuffer + 1, 3 * kBuffer + 5}) {
    const std::vector<unsigned char> sent = pattern(bytes);
    std::vector<unsigned char> source = sent;
    const GpuMemory gpu(bytes);
    accelerator().copy({gpu.data, bytes, source.data(), bytes, bytes});
    std::fill(source.begin(), source.end(), 0);  // it has been read
    std::vector<unsigned char> back(bytes);
    accelerator().copy({back.data(), bytes, gpu.data, bytes, bytes});
    EXPECT_TRUE(back == sent) << bytes << " bytes";
  }
}

TEST_F(CudaCopies, LeaveOutTheGapsBetweenRows) {
  constexpr size_t kWidth = 100;
  constexpr size_t kRows = 50'000;  // more than one buffer
  const std::vector<unsigned char> sent = pattern(kRows * 110);
  const GpuMemory gpu(kRows * 104);
  accelerator().copy({gpu.data, 104, sent.data(), 110, kWidth, kRows});
  std::vector<unsigned char> back(kRows * 120, 1);
  accelerator().copy({back.data(), 120, gpu.data, 104, kWidth, kRows});
  size_t wrong = 0;
  for (size_t r = 0; r < kRows; ++r)
    for (size_t c = 0; c < 120; ++c)
      wrong += back[r * 120 + c] != (c < kWidth ? sent[r * 110 + c] : 1);
  EXPECT_EQ(wrong, 0U);
}

TEST_F(CudaCopies, CutRowsThatAreWiderThanABuffer) {
  constexpr size_t kWidth = cuda::StagedCopy::kBufferBytes + 3;
  const std::vector<unsigned char> sent = pattern(2 * (kWidth + 5));
  const GpuMemory gpu(2 * kWidth);
  accelerator().copy({gpu.data, kWidth, sent.data(), kWidth + 5, kWidth, 2});
  std::vector<unsigned char> back(2 * kWidth);
  accelerator().copy({back.data(), kWidth, gpu.data, kWidth, kWidth, 2});
  EXPECT_TRUE(std::equal(back.begin(), back.begin() + kWidth, sent.begin()));
  EXPECT_TRUE(std::equal(back.begin() + kWidth, back.end(), sent.begin() + kWidth + 5));
}

TEST_F(CudaCopies, TakeRowsWithoutGapsForOneRow) {
  const std::vector<unsigned char> sent = pattern(21);
  const GpuMemory gpu(21);
  accelerator().copy({gpu.data, 7, sent.data(), 7, 7, 3});
  std::vector<unsigned char> back(21);
  accelerator().copy({back.data(), 7, gpu.data, 7, 7, 3});
  EXPECT_TRUE(back == sent);
}

// CUDA copies rows only if they lie less than 2 GiB apart. One row has no distance to the next:
// this is what the pieces of a tensor of 2 GiB look like.
TEST_F(CudaCopies, DoNotAskHowFarTheNextRowWouldBe) {
  constexpr size_t kFar = size_t{1} << 31;
  constexpr size_t kWidth = 1000;
  const std::vector<unsigned char> sent = pattern(kWidth);
  const GpuMemory gpu(kWidth);
  accelerator().copy({gpu.data, kFar, sent.data(), kFar, kWidth, 1});
  std::vector<unsigned char> back(kWidth);
  accelerator().copy({back.data(), kFar, gpu.data, kFar, kWidth, 1});
  EXPECT_TRUE(back == sent);
}

TEST_F(CudaCopies, UsePinnedMemoryDirectly) {
  constexpr size_t kCount = 1000;
  auto* pinned = static_cast<float*>(accelerator().allocate_pinned(kCount * sizeof(float)));
  for (size_t i = 0; i < kCount; ++i) pinned[i] = static_cast<float>(i);
  const GpuMemory gpu(kCount * sizeof(float));
  const GpuMemory other(kCount * sizeof(float));
  constexpr size_t kBytes = kCount * sizeof(float);
  accelerator().copy({gpu.data, kBytes, pinned, kBytes, kBytes});
  accelerator().copy({other.data, kBytes, gpu.data, kBytes, kBytes});
  accelerator().synchronize();
  for (size_t i = 0; i < kCount; ++i) pinned[i] = -1.0F;
  accelerator().copy({pinned, kBytes, other.data, kBytes, kBytes});
  accelerator().synchronize();
  size_t wrong = 0;
  for (size_t i = 0; i < kCount; ++i) wrong += pinned[i] != static_cast<float>(i);
  EXPECT_EQ(wrong, 0U);
  accelerator().release_pinned(pinned);
}

TEST_F(CudaCopies, OfNothingAreAllowed) {
  const GpuMemory gpu(16);
  accelerator().copy({gpu.data, 0, nullptr, 0, 0, 3});
  accelerator().copy({gpu.data, 16, nullptr, 16, 16, 0});
}

TEST_F(CudaCopies, WithinHostMemoryAreRefused) {
  char here[4] = {};
  char there[4] = {};
  EXPECT_THROW(accelerator().copy({here, 4, there, 4, 4}), Error);
}

}  // namespace
}  // namespace lab
