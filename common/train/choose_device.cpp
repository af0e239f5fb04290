#include "common/train/choose_device.h"

#include "common/tensor/accelerator.h"
#include "common/tensor/error.h"

namespace lab {

DeviceChoice choose_device(const std::string& option, bool tf32, int local_rank) {
  require(option == "cpu" || option == "cuda" || option == "auto",
          "--device {}: it must be cpu, cuda or auto", option);
  if (option == "cpu") return {.device = Device::kCpu, .why = "CPU"};
  const AcceleratorSupport support = accelerator_support();
  if (support.count == 0) {
    require(option == "auto", "--device cuda: {}", support.problem);
    return {.device = Device::kCpu, .why = fmt::format("CPU: {}", support.problem)};
  }
  const int index = local_rank % support.count;
  use_accelerator(index);
  accelerator().allow_tf32(tf32);
  return {.device = Device::kCuda,
          .why = fmt::format("{} (GPU {} of {})", accelerator().name(), index, support.count)};
}

}  // namespace lab
