// Failed calls: the message says which call, for what, and what to do about it.
#include <gtest/gtest.h>

#include "common/error.h"
#include "common/gpu/cuda/byte_count.h"
#include "common/gpu/cuda/check.h"
#include "common/tensor/accelerator.h"
#include "tests/gpu/cuda_test.h"

namespace lab::cuda {
namespace {

template <typename Status>
std::string message_of(Status status) {
  try {
    check(status, "cudaSomething", "doing {} things", 3);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

class Check : public test::CudaTest {};

TEST_F(Check, LetsSuccessPass) {
  EXPECT_EQ(message_of(cudaSuccess), "");
  EXPECT_EQ(message_of(CUBLAS_STATUS_SUCCESS), "");
}

TEST_F(Check, SaysWhatWasTriedAndWhatHelps) {
  const std::vector<std::pair<cudaError_t, const char*>> remedies = {
      {cudaErrorNoDevice, "nvidia-smi"},
      {cudaErrorInsufficientDriver, "install a newer driver"},
      {cudaErrorMemoryAllocation, "are free"},
      {cudaErrorInvalidDevice, "CUDA_VISIBLE_DEVICES"},
      {cudaErrorNoKernelImageForDevice, "CMAKE_CUDA_ARCHITECTURES"},
      {cudaErrorIllegalAddress, "compute-sanitizer"},
      {cudaErrorLaunchFailure, "CUDA_LAUNCH_BLOCKING=1"},
      {cudaErrorECCUncorrectable, "another GPU"},
      {cudaErrorStreamCaptureUnsupported, "being recorded"},
      {cudaErrorInvalidValue, "cudaErrorInvalidValue"},
  };
  for (const auto& [status, remedy] : remedies) {
    const std::string message = message_of(status);
    EXPECT_EQ(message.find("doing 3 things: cudaSomething failed: "), 0U) << message;
    EXPECT_NE(message.find(remedy), std::string::npos) << message;
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  }
}

TEST_F(Check, NamesBothVersionsWhenTheDriverIsTooOld) {
  const std::string message = message_of(cudaErrorInsufficientDriver);
  EXPECT_NE(message.find("built with " + version_text(CUDART_VERSION)), std::string::npos)
      << message;
}

TEST_F(Check, ExplainsCublas) {
  EXPECT_NE(message_of(CUBLAS_STATUS_INVALID_VALUE).find("cudaSomething failed: "),
            std::string::npos);
}

TEST(Cublas, IsFoundWithoutGpuToo) {
  EXPECT_STRNE(cublasGetStatusString(CUBLAS_STATUS_NOT_SUPPORTED), "");
}

TEST_F(Check, AnIndexWithoutGpuIsRefused) {
  EXPECT_THROW(detail::open_accelerator(1000), Error);
  accelerator().synchronize();  // the GPU in use is none the worse for it
}

TEST(ByteCount, IsReadable) {
  EXPECT_EQ(byte_count(0), "0 bytes");
  EXPECT_EQ(byte_count(1023), "1023 bytes");
  EXPECT_EQ(byte_count(1536), "1.5 KiB");
  EXPECT_EQ(byte_count(size_t{3} << 20), "3.0 MiB");
  EXPECT_EQ(byte_count(size_t{1} << 50), "1024.0 TiB");
}

}  // namespace
}  // namespace lab::cuda
