// A stage whose passes cannot be recorded, which no healthy machine shows. For the emulation only.
#include <gtest/gtest.h>

#include <string>

#include "tests/emulation/emulation.h"
#include "tests/gpu/cuda_test.h"
#include "tests/gpu/tiny_stage.h"

namespace lab {
namespace {

using test::learn;
using test::random_batch;
using test::whole;

class RecordingEmulated : public testing::Test {
 protected:
  ~RecordingEmulated() override { emulation::reset(); }

  static Tensor gradients_of_four_passes() {
    LlamaStage model = whole(Device::kCuda);
    for (uint64_t pass = 1; pass <= 4; ++pass) learn(model, random_batch(pass), /*microbatch=*/0);
    return model.gradients().to(Device::kCpu);
  }
};

TEST_F(RecordingEmulated, AStageGoesOnWhereALibraryRefuses) {
  const Tensor expected = gradients_of_four_passes();
  emulation::set_records_products(false);
  testing::internal::CaptureStderr();
  const Tensor gradients = gradients_of_four_passes();
  const std::string told = testing::internal::GetCapturedStderr();
  EXPECT_EQ(told.find("note: this stage's passes are not recorded as CUDA graphs: "), 0U) << told;
  EXPECT_EQ(told.find('\n'), told.size() - 1) << "once: " << told;
  EXPECT_EQ(test::different_bits(gradients, expected), 0U);
}

}  // namespace
}  // namespace lab
