// Accesses out of bounds, to freed memory, to memory never written and to that of the other side.
#include "device_array.h"
#include "kernel_test.h"
#include "wrong_kernels.h"

namespace lab::emulation {
namespace {

using Bounds = KernelTest;

template <typename F>
std::string error_of(F kernel) {
  return kernel_error_of([&] {
    kernel();
    cudaDeviceSynchronize();
  });
}

TEST_F(Bounds, OfSharedVariables) {
  DeviceArray<float> y(16);
  EXPECT_EQ(error_of([&] { past_static_array(y.data(), 9); }), "");
  for (const int index : {16, 20, -1, -7, 200}) {
    const std::string name = "first[" + std::to_string(index) + "]";
    expect_parts(error_of([&] { past_static_array(y.data(), index); }),
                 {"thread (9,0,0): writes ", name.c_str(),
                  "outside the variable, which has 16 of these elements"});
  }
}

TEST_F(Bounds, OfSharedVariablesInTemplates) {
  DeviceArray<float> y(16);
  EXPECT_EQ(error_of([&] { past_array_of_template(y.data(), 9); }), "");
  expect_parts(error_of([&] { past_array_of_template(y.data(), 16); }),
               {"past_array_of_template_kernel<float>", "reads array[16]"});
  expect_parts(error_of([&] { past_array_of_template(y.data(), -1); }), {"reads array[-1]"});
}

TEST_F(Bounds, OfDynamicSharedMemory) {
  DeviceArray<float> y(8);
  EXPECT_EQ(error_of([&] { past_dynamic_array(y.data(), 2); }), "");
  expect_parts(error_of([&] { past_dynamic_array(y.data(), 8); }),
               {"writes dynamic shared memory [8]", "outside the 32 bytes"});
  expect_parts(error_of([&] { past_dynamic_array(y.data(), -1); }),
               {"writes dynamic shared memory [-1]"});
}

TEST_F(Bounds, OfDeviceMemory) {
  for (const size_t count : {10U, 64U, 100U}) {
    DeviceArray<float> x(std::vector<float>(count + 1));
    DeviceArray<float> y(count);
    EXPECT_EQ(error_of([&] { copies(x.data(), y.data(), static_cast<int>(count)); }), "");
    const std::string place = "writes argument 2 [" + std::to_string(count) + "]";
    const std::string size = "its allocation of " + std::to_string(4 * count) + " bytes";
    expect_parts(error_of([&] { copies(x.data(), y.data(), static_cast<int>(count) + 1); }),
                 {place.c_str(), size.c_str()});
    expect_parts(error_of([&] { writes_at(y.data(), -1); }), {"writes argument 1 [-1]"});
  }
}

TEST_F(Bounds, AddressesOfSeveralNumbersAtOnce) {
  DeviceArray<float> x(std::vector<float>(8, 1.0F));
  DeviceArray<float> y(8);
  EXPECT_EQ(error_of([&] { copies_fours(x.data(), y.data()); }), "");
  EXPECT_EQ(error_of([&] { copies_fours(x.data() + 4, y.data() + 4); }), "");
  for (const int offset : {1, 2, 3})
    expect_parts(error_of([&] { copies_fours(x.data() + offset, y.data()); }),
                 {"thread (0,0,0): reads argument 1", "wrong_kernels.cu:",
                  "16 bytes at once, which do not begin at a multiple of 16 bytes"});
  expect_parts(error_of([&] { copies_fours(x.data(), y.data() + 2); }),
               {"thread (0,0,0): writes argument 2", "do not begin at a multiple of 16 bytes"});
}

TEST_F(Bounds, FreedDeviceMemory) {
  float* freed = nullptr;
  ASSERT_EQ(cudaMalloc(&freed, 256), cudaSuccess);
  ASSERT_EQ(cudaFree(freed), cudaSuccess);
  expect_parts(error_of([&] { writes_at(freed, 3); }),
               {"writes argument 1 [3]", "which was freed (256 bytes)"});
}

TEST_F(Bounds, UnwrittenSharedMemory) {
  in_all_orders([] {
    DeviceArray<float> y(64);
    expect_parts(
        error_of([&] { reads_unwritten_shared(y.data()); }),
        {"thread (12,0,0): reads sums[12]", "which no thread of this block has written yet"});
    expect_parts(error_of([&] { reads_shared_of_former_block(y.data()); }),
                 {"block (1,0,0)", "reads kept[", "which no thread of this block has written yet"});
  });
}

TEST_F(Bounds, UnwrittenDeviceMemory) {
  DeviceArray<float> x(64);
  DeviceArray<float> y(64);
  expect_parts(error_of([&] { copies(x.data(), y.data(), 64); }),
               {"reads argument 1 [0]", "which was never written"});
  cudaMemset(x.data(), 0, 63 * sizeof(float));
  expect_parts(error_of([&] { copies(x.data(), y.data(), 64); }), {"reads argument 1 [63]"});
  cudaMemset(x.data(), 0, 64 * sizeof(float));
  EXPECT_EQ(error_of([&] { copies(x.data(), y.data(), 64); }), "");
}

TEST_F(Bounds, MemoryOfTheHost) {
  expect_parts(error_of(writes_host_variable), {"writes", "or variable host_variable of the host"});
  std::vector<float> x(64);
  DeviceArray<float> y(64);
  expect_parts(error_of([&] { copies(x.data(), y.data(), 64); }),
               {"reads memory of the host (4 bytes)"});
}

TEST_F(Bounds, HostTouchesDeviceMemory) {
  DeviceArray<float> x(std::vector<float>(4, 2.0F));
  expect_parts(error_of([&] { read_on_host(x.data()); }),
               {"host code reads device memory", "wrong_kernels.cu", "cudaMemcpy"});
}

}  // namespace
}  // namespace lab::emulation
