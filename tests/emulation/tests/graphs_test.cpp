// What is captured runs when the graph does, as often as it does; what capturing forbids is
// refused.
#include "api_kernels.h"
#include "device_array.h"
#include "kernel_test.h"
#include "stream_test.h"

namespace lab::emulation {
namespace {

class Graphs : public KernelTest {
 protected:
  void begin() { ASSERT_EQ(cudaStreamBeginCapture(stream, mode), cudaSuccess); }
  cudaError_t end() { return cudaStreamEndCapture(stream, &graph); }
  void TearDown() override {
    cudaGraphDestroy(graph);
    KernelTest::TearDown();
  }

  DeviceArray<float> x{std::vector<float>(4, 1.0F)};
  TestStream stream;
  TestStream other;
  TestEvent fork;
  TestEvent join;
  cudaGraph_t graph = nullptr;
  cudaStreamCaptureMode mode = cudaStreamCaptureModeThreadLocal;
};

TEST_F(Graphs, ReplayWhatWasCaptured) {
  begin();
  double_and_add(x.data(), 4, 1, stream);
  double_and_add(x.data(), 4, 0, stream);
  ASSERT_EQ(end(), cudaSuccess);
  size_t nodes = 0;
  EXPECT_EQ(cudaGraphGetNodes(graph, nullptr, &nodes), cudaSuccess);
  EXPECT_EQ(nodes, 2U);
  cudaStreamSynchronize(stream);
  EXPECT_EQ(x.values()[0], 1.0F) << "capturing runs nothing";

  cudaGraphExec_t executable = nullptr;
  ASSERT_EQ(cudaGraphInstantiate(&executable, graph, 0), cudaSuccess);
  cudaGraphLaunch(executable, stream);
  cudaGraphLaunch(executable, stream);
  EXPECT_EQ(x.values()[0], 1.0F) << "launching is lazy";
  cudaStreamSynchronize(stream);
  EXPECT_EQ(x.values()[0], 26.0F);
  cudaGraphExecDestroy(executable);
}

TEST_F(Graphs, ForkAndJoin) {
  begin();
  cudaEventRecord(fork, stream);
  cudaStreamWaitEvent(other, fork);
  double_and_add(x.data(), 4, 1, other);
  EXPECT_EQ(cudaEventQuery(fork), cudaErrorCapturedEvent);
  cudaEventRecord(join, other);
  cudaStreamWaitEvent(stream, join);
  EXPECT_EQ(end(), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(other), cudaSuccess) << "no longer captured";
}

TEST_F(Graphs, ForkWithoutJoinIsRefused) {
  begin();
  cudaEventRecord(fork, stream);
  cudaStreamWaitEvent(other, fork);
  double_and_add(x.data(), 4, 1, other);
  EXPECT_EQ(end(), cudaErrorStreamCaptureUnjoined);
  EXPECT_EQ(graph, nullptr);
}

TEST_F(Graphs, WaitingBreaksTheCapture) {
  begin();
  EXPECT_EQ(cudaStreamSynchronize(stream), cudaErrorStreamCaptureUnsupported);
  EXPECT_EQ(double_and_add(x.data(), 4, 1, stream), cudaErrorStreamCaptureInvalidated);
  EXPECT_EQ(end(), cudaErrorStreamCaptureInvalidated);
  cudaStreamCaptureStatus status{};
  EXPECT_EQ(cudaStreamIsCapturing(stream, &status), cudaSuccess);
  EXPECT_EQ(status, cudaStreamCaptureStatusNone);
}

TEST_F(Graphs, AllocatingBreaksTheCaptureUnlessRelaxed) {
  void* memory = nullptr;
  begin();
  EXPECT_EQ(cudaMalloc(&memory, 16), cudaErrorStreamCaptureUnsupported);
  EXPECT_EQ(end(), cudaErrorStreamCaptureInvalidated);
  mode = cudaStreamCaptureModeRelaxed;
  begin();
  EXPECT_EQ(cudaMalloc(&memory, 16), cudaSuccess);
  EXPECT_EQ(end(), cudaSuccess);
  EXPECT_EQ(cudaFree(memory), cudaSuccess);
}

TEST_F(Graphs, ThreadMayBeRelaxedForAWhile) {
  void* memory = nullptr;
  begin();
  cudaStreamCaptureMode other_mode = cudaStreamCaptureModeRelaxed;
  ASSERT_EQ(cudaThreadExchangeStreamCaptureMode(&other_mode), cudaSuccess);
  EXPECT_EQ(other_mode, cudaStreamCaptureModeGlobal);
  EXPECT_EQ(cudaMalloc(&memory, 16), cudaSuccess);
  ASSERT_EQ(cudaThreadExchangeStreamCaptureMode(&other_mode), cudaSuccess);
  EXPECT_EQ(end(), cudaSuccess);
  EXPECT_EQ(cudaFree(memory), cudaSuccess);
}

TEST_F(Graphs, WorkOutsideIsRefused) {
  TestEvent outside;
  cudaEventRecord(outside, other);
  begin();
  EXPECT_EQ(cudaStreamWaitEvent(stream, outside), cudaErrorStreamCaptureIsolation);
  EXPECT_EQ(end(), cudaErrorStreamCaptureInvalidated);
  EXPECT_EQ(end(), cudaErrorIllegalState) << "not captured any more";
}

TEST_F(Graphs, DefaultStreamIsRefused) {
  EXPECT_EQ(cudaStreamBeginCapture(nullptr, mode), cudaErrorStreamCaptureUnsupported);
  TestStream blocking(cudaStreamDefault);
  ASSERT_EQ(cudaStreamBeginCapture(blocking, cudaStreamCaptureModeRelaxed), cudaSuccess);
  EXPECT_EQ(double_and_add(x.data(), 4, 1, nullptr), cudaErrorStreamCaptureImplicit);
  EXPECT_EQ(cudaStreamEndCapture(blocking, &graph), cudaErrorStreamCaptureInvalidated);
}

}  // namespace
}  // namespace lab::emulation
