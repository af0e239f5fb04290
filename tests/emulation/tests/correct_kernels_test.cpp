// Kernels without mistakes give the right results in all orders, and no alarm.
#include "correct_kernels.h"

#include <cmath>
#include <numeric>

#include "device_array.h"
#include "kernel_test.h"

namespace lab::emulation {
namespace {

std::vector<float> waves(size_t count) {
  std::vector<float> result(count);
  for (size_t i = 0; i < count; ++i) result[i] = std::sin(static_cast<float>(i) * 0.37F);
  return result;
}

using CorrectKernels = KernelTest;

TEST_F(CorrectKernels, SumRowsOfAnyLength) {
  for (const int width : {1, 31, 64, 100, 288}) {
    const int rows = 5;
    const std::vector<float> x = waves(static_cast<size_t>(rows) * static_cast<size_t>(width));
    in_all_orders([&] {
      DeviceArray<float> dx(x);
      DeviceArray<float> dy(rows);
      row_sums(dx.data(), dy.data(), rows, width, 128);
      const std::vector<float> y = dy.values();
      for (int r = 0; r < rows; ++r) {
        const auto begin = x.begin() + r * width;
        EXPECT_NEAR(y[static_cast<size_t>(r)], std::accumulate(begin, begin + width, 0.0), 1e-4);
      }
    });
  }
}

TEST_F(CorrectKernels, WhatASingleThreadReadsAtMost) {
  const std::vector<float> x = waves(size_t{3} * 320);
  in_all_orders([&] {
    DeviceArray<float> dx(x);
    DeviceArray<float> dy(3);
    row_sums(dx.data(), dy.data(), 3, 320, 32);
    dy.values();
    EXPECT_EQ(statistics().most_bytes_read, (320 / 32 + 1) * sizeof(float));  // 1: shared memory
    row_sums(dx.data(), dy.data(), 3, 320, 128);
    dy.values();
    EXPECT_EQ(statistics().most_bytes_read, (3 + 1) * sizeof(float)) << "of the last kernel only";
    EXPECT_EQ(statistics().device_bytes_read, x.size() * sizeof(float)) << "without shared memory";
    EXPECT_EQ(statistics().device_bytes_written, 3 * sizeof(float));
  });
}

TEST_F(CorrectKernels, TransposeInTiles) {
  const int rows = 20;
  const int columns = 37;
  const std::vector<float> x = waves(static_cast<size_t>(rows) * static_cast<size_t>(columns));
  in_all_orders([&] {
    DeviceArray<float> dx(x);
    DeviceArray<float> dy(x.size());
    transpose(dx.data(), dy.data(), rows, columns);
    const std::vector<float> y = dy.values();
    for (int r = 0; r < rows; ++r) {
      for (int c = 0; c < columns; ++c) {
        ASSERT_EQ(y[static_cast<size_t>(c * rows + r)], x[static_cast<size_t>(r * columns + c)]);
      }
    }
  });
}

TEST_F(CorrectKernels, CountWithAtomics) {
  std::vector<int> values(300);
  std::vector<int> expected(16);
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<int>(i * i % 16);
    ++expected[static_cast<size_t>(values[i])];
  }
  in_all_orders([&] {
    DeviceArray<int> dv(values);
    DeviceArray<int> dc(std::vector<int>(16, 0));
    histogram(dv.data(), dc.data(), 300);
    EXPECT_EQ(dc.values(), expected);
  });
}

TEST_F(CorrectKernels, PrefixSumsInDynamicSharedMemory) {
  for (const size_t n : {1U, 33U, 1024U}) {
    const std::vector<float> x(n, 1.0F);
    std::vector<float> expected(n);
    std::partial_sum(x.begin(), x.end(), expected.begin());
    in_all_orders([&] {
      DeviceArray<float> dx(x);
      DeviceArray<float> dy(n);
      prefix_sums(dx.data(), dy.data(), static_cast<int>(n));
      EXPECT_EQ(dy.values(), expected);
    });
  }
}

TEST_F(CorrectKernels, ExchangeThroughSharedMemoryInAWarp) {
  const std::vector<float> x = waves(64);
  in_all_orders([&] {
    DeviceArray<float> dx(x);
    DeviceArray<float> dy(64);
    swap_neighbours(dx.data(), dy.data());
    const std::vector<float> y = dy.values();
    for (size_t i = 0; i < 64; ++i) EXPECT_EQ(y[i], x[i ^ 1]);
  });
}

TEST_F(CorrectKernels, WarpOperations) {
  in_all_orders([&] {
    DeviceArray<int> dy(8 * 32);
    warp_results(dy.data());
    const std::vector<int> y = dy.values();
    for (int lane = 0; lane < 32; ++lane) {
      SCOPED_TRACE(lane);
      const int* mine = y.data() + 8 * lane;
      EXPECT_EQ(mine[0], 70);
      EXPECT_EQ(mine[1], lane < 3 ? lane : lane - 3);
      EXPECT_EQ(mine[2], lane > 28 ? lane : lane + 3);
      EXPECT_EQ(mine[3], lane ^ 5);
      EXPECT_EQ(mine[4], 0x49249249);
      EXPECT_EQ(mine[5], 2);
      EXPECT_EQ(mine[6], lane / 4 * 4 + (lane + 1) % 4);
      EXPECT_EQ(mine[7], lane < 15 ? lane + 1 : lane == 15 ? 15 : lane ^ 1);
    }
  });
}

TEST_F(CorrectKernels, BlocksThatTellEachOtherByFenceAndAtomic) {
  const std::vector<float> x(1000, 0.5F);
  in_all_orders([&] {
    DeviceArray<float> dx(x);
    DeviceArray<float> scratch(7);
    DeviceArray<unsigned> counter(std::vector<unsigned>{0});
    DeviceArray<float> dy(1);
    for (int round = 0; round < 2; ++round) {
      sum_by_last_block(dx.data(), scratch.data(), counter.data(), dy.data(), 1000, 7);
    }
    EXPECT_EQ(dy.values()[0], 500.0F);
  });
}

TEST_F(CorrectKernels, HalvesOfAWordByDifferentThreads) {
  const std::vector<float> x = waves(77);
  in_all_orders([&] {
    DeviceArray<float> dx(x);
    DeviceArray<__nv_bfloat16> dy(77);
    to_bfloat16(dx.data(), dy.data(), 77);
    const std::vector<__nv_bfloat16> y = dy.values();
    for (size_t i = 0; i < 77; ++i) EXPECT_NEAR(float{y[i]}, x[i], 0.005F);
  });
}

TEST_F(CorrectKernels, VectorsAndStructsAsArguments) {
  const std::vector<float> x = waves(100);
  in_all_orders([&] {
    DeviceArray<float> dx(x);
    DeviceArray<float> dy(100);
    affine({dx.data(), dy.data(), 2.0F, 1.0F}, 100);
    const std::vector<float> y = dy.values();
    for (size_t i = 0; i < 100; ++i) EXPECT_FLOAT_EQ(y[i], 2 * x[i] + 1);
  });
}

TEST_F(CorrectKernels, BarriersThatCount) {
  in_all_orders([&] {
    DeviceArray<float> dx(std::vector<float>{1, -1, 2, 0, 3});
    DeviceArray<int> dy(3);
    signs(dx.data(), dy.data(), 5);
    EXPECT_EQ(dy.values(), (std::vector<int>{3, 1, 0}));
  });
}

TEST_F(CorrectKernels, StructsGivenToFunctionsAndReturned) {
  in_all_orders([&] {
    DeviceArray<float> dx(std::vector<float>(64, 0.125F));
    DeviceArray<float> dy(64);
    struct_sums(dx.data(), dy.data());
    for (const float y : dy.values()) EXPECT_NEAR(y, 48, 1e-3);
  });
}

TEST_F(CorrectKernels, ConstantsAndSharedBfloat16) {
  in_all_orders([&] {
    DeviceArray<float> dy(5);
    constants(dy.data());
    EXPECT_EQ(dy.values(), (std::vector<float>{2.5F, -3.0F, 4.0F, 0.25F, 1.5F}));
  });
}

TEST(Bfloat16, RoundsToNearestEven) {
  EXPECT_EQ(__float2bfloat16(1.0F).bits, 0x3f80);
  EXPECT_EQ(__float2bfloat16(1.00390625F).bits, 0x3f80);  // a tie, down to even
  EXPECT_EQ(__float2bfloat16(1.01171875F).bits, 0x3f82);  // a tie, up to even
  EXPECT_EQ(__float2bfloat16(1.004F).bits, 0x3f81);
  EXPECT_TRUE(std::isnan(__bfloat162float(__float2bfloat16(NAN))));
  EXPECT_TRUE(std::isinf(__bfloat162float(__float2bfloat16(3.4e38F))));
}

}  // namespace
}  // namespace lab::emulation
