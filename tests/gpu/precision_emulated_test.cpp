// GPUs that lack a precision. For the emulation only.
#include <gtest/gtest.h>

#include "common/error.h"
#include "common/tensor/accelerator.h"
#include "tests/emulation/emulation.h"

namespace lab {
namespace {

TEST(PrecisionOfOldGpu, Bfloat16NeedsCapability80) {
  emulation::set_compute_capability(7, 5);
  std::string message;
  try {
    accelerator().set_precision(Precision::kBfloat16);
  } catch (const Error& error) {
    message = error.what();
  }
  emulation::set_compute_capability(8, 0);
  EXPECT_EQ(message,
            "bfloat16 needs a GPU of compute capability 8.0 (Ampere) or newer, and GPU 0 has 7.5: "
            "use --precision float32");
  accelerator().set_precision(Precision::kBfloat16);
  accelerator().set_precision(Precision::kFloat32);
}

}  // namespace
}  // namespace lab
