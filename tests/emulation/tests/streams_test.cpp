// Streams are lazy, events order them, and copies are as asynchronous as CUDA's.
#include "api_kernels.h"
#include "device_array.h"
#include "kernel_test.h"
#include "stream_test.h"

namespace lab::emulation {
namespace {

constexpr size_t kBytes = 4 * sizeof(float);

class Streams : public KernelTest {};

TEST_F(Streams, NothingRunsBeforeTheHostWaits) {
  DeviceArray<float> x(std::vector<float>(4, 1.0F));
  TestStream stream;
  Pinned result(4, -1.0F);
  double_and_add(x.data(), 4, 3, stream);
  cudaMemcpyAsync(result.data, x.data(), kBytes, cudaMemcpyDeviceToHost, stream);
  EXPECT_EQ(statistics().launches, 0);
  EXPECT_EQ(result.data[0], -1.0F) << "a host that does not wait sees the old value";
  ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
  EXPECT_EQ(result.data[0], 5.0F);
  EXPECT_EQ(statistics().launches, 1);
}

TEST_F(Streams, PinnedMemoryIsReadWhenTheCopyRuns) {
  DeviceArray<float> x(4);
  TestStream stream;
  Pinned source(4, 1.0F);
  std::vector<float> pageable(4, 1.0F);
  cudaMemcpyAsync(x.data(), source.data, kBytes, cudaMemcpyHostToDevice, stream);
  source.data[0] = 7;
  cudaStreamSynchronize(stream);
  EXPECT_EQ(x.values()[0], 7.0F) << "reused too early";
  cudaMemcpyAsync(x.data(), pageable.data(), kBytes, cudaMemcpyHostToDevice, stream);
  pageable[0] = 7;
  cudaStreamSynchronize(stream);
  EXPECT_EQ(x.values()[0], 1.0F) << "pageable memory is taken at once";
}

TEST_F(Streams, CopyToPageableMemoryWaits) {
  DeviceArray<float> x(std::vector<float>(4, 1.0F));
  TestStream stream;
  std::vector<float> result(4);
  double_and_add(x.data(), 4, 0, stream);
  cudaMemcpyAsync(result.data(), x.data(), kBytes, cudaMemcpyDeviceToHost, stream);
  EXPECT_EQ(result[3], 2.0F);
}

TEST_F(Streams, OnlyEventsOrderThem) {
  DeviceArray<float> x(std::vector<float>(4, 1.0F));
  TestStream first;
  TestStream second;
  TestEvent event;
  double_and_add(x.data(), 4, 0, first);
  cudaEventRecord(event, first);
  cudaStreamWaitEvent(second, event);
  double_and_add(x.data(), 4, 1, second);
  cudaStreamSynchronize(second);
  EXPECT_EQ(x.values()[0], 5.0F);
}

TEST_F(Streams, WithoutEventTheResultDependsOnTheOrder) {
  std::vector<float> results;
  in_all_orders([&] {
    DeviceArray<float> x(std::vector<float>(4, 1.0F));
    TestStream first;
    TestStream second;
    double_and_add(x.data(), 4, 0, first);
    double_and_add(x.data(), 4, 1, second);
    cudaDeviceSynchronize();
    results.push_back(x.values()[0]);
  });
  EXPECT_EQ(results[0], 5.0F);
  EXPECT_EQ(results[1], 6.0F);
}

TEST_F(Streams, DefaultStreamWaitsForBlockingOnes) {
  DeviceArray<float> x(std::vector<float>(4, 1.0F));
  TestStream blocking(cudaStreamDefault);
  double_and_add(x.data(), 4, 0, blocking);
  double_and_add(x.data(), 4, 1, nullptr);
  double_and_add(x.data(), 4, 2, blocking);
  cudaStreamSynchronize(blocking);
  EXPECT_EQ(x.values()[0], 12.0F);
}

TEST_F(Streams, EventsTellWhenTheyAreReached) {
  DeviceArray<float> x(std::vector<float>(4, 1.0F));
  TestStream stream;
  TestEvent start;
  TestEvent end;
  float milliseconds = -1;
  cudaEventRecord(start, stream);
  double_and_add(x.data(), 4, 0, stream);
  cudaEventRecord(end, stream);
  EXPECT_EQ(cudaEventElapsedTime(&milliseconds, start, end), cudaErrorNotReady);
  EXPECT_EQ(cudaEventQuery(end), cudaErrorNotReady);
  EXPECT_EQ(cudaStreamQuery(stream), cudaErrorNotReady);
  EXPECT_EQ(cudaEventSynchronize(end), cudaSuccess);
  EXPECT_EQ(cudaEventQuery(end), cudaSuccess);
  EXPECT_EQ(cudaStreamQuery(stream), cudaSuccess);
  EXPECT_EQ(cudaEventElapsedTime(&milliseconds, start, end), cudaSuccess);
  EXPECT_GE(milliseconds, 0.0F);
}

TEST_F(Streams, CopiesOfRows) {
  DeviceArray<float> x(std::vector<float>{1, 2, 3, 4, 5, 6});
  DeviceArray<float> y(std::vector<float>(4));
  EXPECT_EQ(cudaMemcpy2D(y.data(), 2 * sizeof(float), x.data() + 1, 3 * sizeof(float),
                         2 * sizeof(float), 2, cudaMemcpyDeviceToDevice),
            cudaSuccess);
  EXPECT_EQ(y.values(), (std::vector<float>{2, 3, 5, 6}));
  EXPECT_EQ(cudaMemcpy2D(y.data(), 2 * sizeof(float), x.data() + 2, 3 * sizeof(float),
                         2 * sizeof(float), 2, cudaMemcpyDeviceToDevice),
            cudaErrorInvalidValue)
      << "one element past the end";
}

TEST_F(Streams, ErrorOfKernelIsKeptByCallsOfDestructors) {
  TestStream stream;
  {
    DeviceArray<float> x(2);  // never written
    double_and_add(x.data(), 2, 0, stream);
  }
  expect_parts(kernel_error_of([] { cudaDeviceSynchronize(); }),
               {"reads argument 1 [0]", "which was never written"});
  EXPECT_EQ(kernel_error_of([] { cudaDeviceSynchronize(); }), "");
}

}  // namespace
}  // namespace lab::emulation
