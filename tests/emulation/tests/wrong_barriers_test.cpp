// Divergent barriers and warp operations are found, and the message says where.
#include "device_array.h"
#include "kernel_test.h"
#include "wrong_kernels.h"

namespace lab::emulation {
namespace {

using WrongBarriers = KernelTest;

template <typename F>
std::string error_of(F kernel) {
  return kernel_error_of([&] {
    kernel();
    cudaDeviceSynchronize();
  });
}

/// The same parts in every order.
template <typename F>
void expect_error(F kernel, std::initializer_list<const char*> parts) {
  in_all_orders([&] { expect_parts(error_of(kernel), parts); });
}

TEST_F(WrongBarriers, InABranch) {
  expect_error(barrier_in_a_branch,
               {"kernel lab::emulation::barrier_in_a_branch_kernel, block (0,0,0), thread (0,0,0)",
                "waits in __syncthreads at wrong_kernels.cu:",
                "thread (20,0,0) has left the kernel", "divergent barrier"});
}

TEST_F(WrongBarriers, SomeThreadsLeaveBefore) {
  expect_error([] { leaves_before_the_barrier(50); },
               {"waits in __syncthreads", "thread (50,0,0) has left the kernel"});
  EXPECT_EQ(error_of([] { leaves_before_the_barrier(64); }), "");
}

TEST_F(WrongBarriers, AtTwoPlaces) {
  expect_error(two_barriers, {"thread (0,0,0): waits in __syncthreads at wrong_kernels.cu:",
                              "thread (1,0,0) waits in __syncthreads at wrong_kernels.cu:"});
}

TEST_F(WrongBarriers, LaneNeverArrivesAtShuffle) {
  expect_error(lane_never_shuffles,
               {"waits in __shfl_xor_sync with mask 0xffffffff at wrong_kernels.cu:",
                "lane 5, thread (5,0,0), waits in __syncthreads at wrong_kernels.cu:"});
  expect_error(lane_left_before_shuffle, {"lane 30, thread (30,0,0), has left the kernel"});
}

TEST_F(WrongBarriers, MaskOfShuffle) {
  expect_error(mask_without_the_caller, {"mask 0x0000ffff, which does not name its own lane, "});
  expect_error(reads_lane_outside_the_mask,
               {"reads lane 16 for lane 8, but mask 0x0000ffff does not name lane 16"});
  expect_error(mask_beyond_the_block, {"only 20 threads: lane 20 does not exist"});
}

TEST_F(WrongBarriers, DifferentOperationsMeet) {
  expect_error(shuffle_meets_vote, {"__shfl_xor_sync", "a vote of the warp"});
}

TEST_F(WrongBarriers, WidthOfShuffle) {
  expect_error(width_is_no_power_of_two, {"width 12: must be a power of two"});
}

TEST_F(WrongBarriers, NextKernelRunsAsIfNothingHadHappened) {
  EXPECT_NE(error_of(barrier_in_a_branch), "");
  DeviceArray<float> dx(std::vector<float>(64, 3.0F));
  DeviceArray<float> dy(64);
  copies(dx.data(), dy.data(), 64);
  EXPECT_EQ(dy.values(), std::vector<float>(64, 3.0F));
}

}  // namespace
}  // namespace lab::emulation
