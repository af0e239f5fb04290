// Errors that CUDA returns are returned here too, with its codes; settings of emulation.h.
#include "api_kernels.h"
#include "device_array.h"
#include "kernel_test.h"

namespace lab::emulation {
namespace {

class Runtime : public KernelTest {
 protected:
  cudaError_t launch(dim3 grid, dim3 block, size_t shared = 0) {
    cudaLaunchConfig_t config{};
    config.gridDim = grid;
    config.blockDim = block;
    config.dynamicSmemBytes = shared;
    return double_and_add(x.data(), 4, 0, config);
  }
  DeviceArray<float> x{std::vector<float>(4, 1.0F)};
};

TEST_F(Runtime, ConfigurationsOfLaunches) {
  EXPECT_EQ(launch(0, 32), cudaErrorInvalidConfiguration);
  EXPECT_EQ(cudaPeekAtLastError(), cudaErrorInvalidConfiguration);
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidConfiguration);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  EXPECT_EQ(launch(1, 0), cudaErrorInvalidConfiguration);
  EXPECT_EQ(launch(1, 1025), cudaErrorInvalidConfiguration);
  EXPECT_EQ(launch(1, dim3(1, 1, 65)), cudaErrorInvalidConfiguration);
  EXPECT_EQ(launch(dim3(1, 65536), 32), cudaErrorInvalidConfiguration);
  EXPECT_EQ(launch(1, dim3(32, 32)), cudaSuccess);
}

TEST_F(Runtime, DynamicSharedMemoryBeyondTheDefault) {
  EXPECT_EQ(launch(1, 32, 48 * 1024), cudaSuccess);
  EXPECT_EQ(launch(1, 32, 48 * 1024 + 1), cudaErrorInvalidValue);
  EXPECT_EQ(allow_shared(100 * 1024), cudaSuccess);
  EXPECT_EQ(launch(1, 32, 100 * 1024), cudaSuccess);
  EXPECT_EQ(allow_shared(200 * 1024), cudaErrorInvalidValue);
  EXPECT_EQ(allow_shared(48 * 1024), cudaSuccess);
}

TEST_F(Runtime, Copies) {
  std::vector<float> host(8);
  EXPECT_EQ(cudaMemcpy(host.data(), x.data(), 20, cudaMemcpyDeviceToHost), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpy(host.data(), x.data(), 16, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemset(x.data(), 0, 17), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpy(host.data(), x.data(), 16, cudaMemcpyDefault), cudaSuccess);
  EXPECT_EQ(cudaFree(host.data()), cudaErrorInvalidValue);
  EXPECT_EQ(cudaFree(nullptr), cudaSuccess);
}

TEST_F(Runtime, PitchesOfCopies) {
  std::vector<float> host(4);
  const auto copy_rows = [&](size_t to_pitch, size_t from_pitch, size_t width, size_t height) {
    const cudaError_t now = cudaMemcpy2D(host.data(), to_pitch, x.data(), from_pitch, width, height,
                                         cudaMemcpyDeviceToHost);
    EXPECT_EQ(cudaMemcpy2DAsync(host.data(), to_pitch, x.data(), from_pitch, width, height,
                                cudaMemcpyDeviceToHost, nullptr),
              now);
    return now;
  };
  constexpr size_t kLargest = 0x7fffffff;
  EXPECT_EQ(copy_rows(8, 8, 8, 2), cudaSuccess);
  EXPECT_EQ(copy_rows(4, 8, 8, 1), cudaErrorInvalidPitchValue);
  EXPECT_EQ(copy_rows(8, 4, 8, 1), cudaErrorInvalidPitchValue);
  EXPECT_EQ(copy_rows(kLargest, kLargest, 8, 1), cudaSuccess);
  EXPECT_EQ(copy_rows(kLargest + 1, 8, 8, 1), cudaErrorInvalidValue);  // even of a single row
  EXPECT_EQ(copy_rows(8, kLargest + 1, 8, 1), cudaErrorInvalidValue);
}

TEST_F(Runtime, MemoryRunsOut) {
  set_total_memory(1000);
  size_t free = 0;
  size_t total = 0;
  EXPECT_EQ(cudaMemGetInfo(&free, &total), cudaSuccess);
  EXPECT_EQ(total, 1000U);
  EXPECT_EQ(free, 1000U - 16);
  void* memory = nullptr;
  EXPECT_EQ(cudaMalloc(&memory, 985), cudaErrorMemoryAllocation);
  EXPECT_STREQ(cudaGetErrorString(cudaGetLastError()), "out of memory");
  EXPECT_EQ(cudaMalloc(&memory, 984), cudaSuccess);
  EXPECT_EQ(cudaFree(memory), cudaSuccess);
}

TEST_F(Runtime, Devices) {
  set_device_count(2);
  int count = 0;
  EXPECT_EQ(cudaGetDeviceCount(&count), cudaSuccess);
  EXPECT_EQ(count, 2);
  EXPECT_EQ(cudaSetDevice(2), cudaErrorInvalidDevice);
  EXPECT_EQ(cudaSetDevice(1), cudaSuccess);
  cudaDeviceProp properties{};
  EXPECT_EQ(cudaGetDeviceProperties(&properties, 1), cudaSuccess);
  EXPECT_STREQ(properties.name, "emulated device");
  EXPECT_EQ(cudaSetDevice(0), cudaSuccess);
}

TEST_F(Runtime, NoDriverOrTooOld) {
  int count = -1;
  set_driver(Driver::kMissing);
  EXPECT_EQ(cudaGetDeviceCount(&count), cudaErrorInsufficientDriver);
  EXPECT_EQ(count, 0);
  set_driver(Driver::kTooOld);
  EXPECT_EQ(cudaGetDeviceCount(&count), cudaErrorInsufficientDriver);
  int driver = 0;
  int runtime = 0;
  EXPECT_EQ(cudaDriverGetVersion(&driver), cudaSuccess);
  EXPECT_EQ(cudaRuntimeGetVersion(&runtime), cudaSuccess);
  EXPECT_LT(driver, runtime);
  set_driver(Driver::kPresent);
}

TEST_F(Runtime, NamesOfErrors) {
  EXPECT_STREQ(cudaGetErrorName(cudaErrorCapturedEvent), "cudaErrorCapturedEvent");
  EXPECT_STREQ(cudaGetErrorString(cudaErrorInvalidConfiguration), "invalid configuration argument");
}

}  // namespace
}  // namespace lab::emulation
