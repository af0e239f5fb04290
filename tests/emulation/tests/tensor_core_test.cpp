// Instructions of tensor cores: results by a plain triple loop, layouts by the PTX ISA, and
// mistakes.
#include "device_array.h"
#include "kernel_test.h"
#include "tensor_core_kernels.h"

namespace lab::emulation {
namespace {

using Elements = std::vector<__nv_bfloat16>;

class TensorCore : public KernelTest {
 protected:
  /// Small integers: products and sums are exact.
  static Elements integers(size_t count, int seed) {
    Elements result(count);
    for (size_t i = 0; i < count; ++i) {
      const int value = static_cast<int>(i * i * 7 + i * 13) + seed;
      result[i] = static_cast<float>(value % 23 - 11);
    }
    return result;
  }
  /// d [16, 8] + a [16, 16] b [16, 8].
  static std::vector<float> expected(std::vector<float> d, const Elements& a, const Elements& b) {
    for (size_t row = 0; row < 16; ++row) {
      for (size_t column = 0; column < 8; ++column) {
        for (size_t k = 0; k < 16; ++k) {
          d[row * 8 + column] += float{a[row * 16 + k]} * float{b[k * 8 + column]};
        }
      }
    }
    return d;
  }
  template <typename F>
  static void expect_error(F kernel, std::initializer_list<const char*> parts) {
    in_all_orders([&] {
      DeviceArray<__nv_bfloat16> x(integers(256, 1));
      expect_parts(kernel_error_of([&] {
                     kernel(x.data());
                     cudaDeviceSynchronize();
                   }),
                   parts);
    });
  }
  template <typename F>
  static void expect_error_of_warp(F kernel, std::initializer_list<const char*> parts) {
    expect_error([&](const __nv_bfloat16*) { kernel(); }, parts);
  }

  Elements a_ = integers(256, 1);
  Elements b_ = integers(128, 5);
  std::vector<float> d_ = std::vector<float>(128, 0.5F);
};

TEST_F(TensorCore, MultipliesAndAdds) {
  in_all_orders([&] {
    DeviceArray<__nv_bfloat16> a(a_);
    DeviceArray<__nv_bfloat16> b(b_);
    DeviceArray<float> d(d_);
    multiply_blocks(a.data(), b.data(), d.data());
    EXPECT_EQ(d.values(), expected(d_, a_, b_));
  });
}

TEST_F(TensorCore, MultipliesWhatWasLoaded) {
  Elements transposed(128);
  for (size_t i = 0; i < 128; ++i) transposed[i % 8 * 16 + i / 8] = b_[i];
  in_all_orders([&] {
    DeviceArray<__nv_bfloat16> a(a_);
    for (const bool is_transposed : {false, true}) {
      DeviceArray<__nv_bfloat16> b(is_transposed ? transposed : b_);
      DeviceArray<float> d(d_);
      multiply_shared_blocks(a.data(), b.data(), d.data(), is_transposed);
      EXPECT_EQ(d.values(), expected(d_, a_, b_));
    }
  });
}

TEST_F(TensorCore, LoadsEachLaneItsPairs) {
  in_all_orders([&] {
    DeviceArray<__nv_bfloat16> x(a_);
    DeviceArray<__nv_bfloat16> plain(256);
    DeviceArray<__nv_bfloat16> transposed(256);
    load_four(x.data(), plain.data(), false);
    load_four(x.data(), transposed.data(), true);
    const Elements p = plain.values();
    const Elements t = transposed.values();
    for (size_t n = 0; n < 256; ++n) {
      const size_t lane = n / 8;
      const size_t matrix = n % 8 / 2 * 64;
      const size_t major = lane / 4;
      const size_t minor = lane % 4 * 2 + n % 2;
      EXPECT_EQ(float{p[n]}, float{a_[matrix + major * 8 + minor]}) << n;
      EXPECT_EQ(float{t[n]}, float{a_[matrix + minor * 8 + major]}) << n;
    }
  });
}

TEST_F(TensorCore, NeedsAllLanes) {
  expect_error_of_warp(lane_never_multiplies,
                       {"waits in mma.sync with mask 0xffffffff at tensor_core_kernels.cu:",
                        "lane 5, thread (5,0,0), waits in __syncthreads"});
  expect_error_of_warp(multiplies_in_part_of_a_warp, {"only 20 threads: lane 20 does not exist"});
}

TEST_F(TensorCore, NeedsThemAtOnePlace) {
  expect_error_of_warp(multiplies_at_two_places,
                       {"waits in mma.sync with mask 0xffffffff at tensor_core_kernels.cu:",
                        "of its warp waits in mma.sync with mask 0xffffffff at "
                        "tensor_core_kernels.cu:"});
  expect_error(load_meets_transposed_load,
               {"waits in ldmatrix with", "waits in ldmatrix.trans with", "of its warp"});
}

TEST_F(TensorCore, LoadsAlignedRowsOnly) {
  expect_error(
      row_is_not_aligned,
      {"loads a row of a matrix by ldmatrix at tensor_core_kernels.cu:",
       " from dynamic shared memory [", "], which does not begin at a multiple of 16 bytes"});
}

TEST_F(TensorCore, LoadsSharedMemoryOnly) {
  expect_error(row_in_device_memory, {"loads a row of a matrix by ldmatrix at ",
                                      " from argument 1 [", "], which is not shared memory"});
}

TEST_F(TensorCore, LoadsAreAccessesOfTheirLanes) {
  expect_error(row_past_shared_memory,
               {"thread (31,0,0): reads dynamic shared memory [",
                "at tensor_core_kernels.cu:", "outside the 512 bytes that the launch asked for"});
  expect_error(row_never_written,
               {"thread (31,0,0): reads dynamic shared memory [127]",
                "at tensor_core_kernels.cu:", "which no thread of this block has written yet"});
  expect_error(row_written_by_other_lane, {"dynamic shared memory [", "a barrier"});
  expect_error(row_written_too_early,
               {"writes dynamic shared memory [", "read: without a barrier in between"});
}

}  // namespace
}  // namespace lab::emulation
