// Accesses that nothing orders are found in every order of threads.
#include "device_array.h"
#include "kernel_test.h"
#include "wrong_kernels.h"

namespace lab::emulation {
namespace {

class Races : public KernelTest {
 protected:
  template <typename F>
  void expect_error(F kernel, std::initializer_list<const char*> parts) {
    in_all_orders([&] {
      const std::vector<float> ones(64, 1.0F);
      DeviceArray<float> x(ones);
      DeviceArray<float> y(ones);
      expect_parts(kernel_error_of([&] {
                     kernel(x.data(), y.data());
                     cudaDeviceSynchronize();
                   }),
                   parts);
    });
  }
};

TEST_F(Races, NoBarrierBetweenWritingAndReading) {
  expect_error(no_barrier_after_writing,
               {"kernel lab::emulation::no_barrier_after_writing_kernel, block (0,0,0), thread (",
                "part[", "at wrong_kernels.cu:", "a barrier"});
}

TEST_F(Races, NoBarrierBetweenReadingAndWritingAgain) {
  expect_error(no_barrier_before_writing, {"part[", "without a barrier in between"});
}

TEST_F(Races, ShuffleOrdersNothing) {
  expect_error(shuffle_instead_of_syncwarp, {"part[", "without a barrier in between"});
}

TEST_F(Races, SyncwarpOrdersOnlyItsMask) { expect_error(half_a_syncwarp, {"part[", "a barrier"}); }

TEST_F(Races, OneWordWrittenByAll) {
  expect_error([](const float*, float* y) { all_write_one_word(y); },
               {"writes argument 1 [3] at wrong_kernels.cu:", "which thread (", "wrote"});
}

TEST_F(Races, PlainAccessBesideAtomics) {
  expect_error([](const float*, float* y) { atomic_and_plain(reinterpret_cast<int*>(y)); },
               {"argument 1 [0]", "which thread (", "wrote", "without a barrier in between"});
}

TEST_F(Races, BetweenBlocks) {
  expect_error(
      [](const float*, float* y) { blocks_write_one_word(y); },
      {"writes argument 1 [0]", "which thread (0,0,0) of block (", "wrote: nothing orders"});
  expect_error([](const float*, float* y) { block_reads_another_blocks_word(y); },
               {"argument 1 [", "of block (", ": nothing orders blocks"});
}

TEST_F(Races, OnHalvesOfWords) {
  in_all_orders([] {
    const std::vector<__nv_bfloat16> ones(64, 1.0F);
    DeviceArray<__nv_bfloat16> x(ones);
    DeviceArray<__nv_bfloat16> y(ones);
    expect_parts(kernel_error_of([&] {
                   races_on_bfloat16(x.data(), y.data());
                   cudaDeviceSynchronize();
                 }),
                 {"part["});
  });
}

TEST_F(Races, OnStructsThatFunctionsReturnAndGet) {
  expect_error(races_on_returned_struct, {"part[", "at wrong_kernels.cu:", "a barrier"});
  expect_error(races_on_given_struct, {"part[", "at wrong_kernels.cu:", "a barrier"});
}

}  // namespace
}  // namespace lab::emulation
