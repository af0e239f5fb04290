#include "common/run/options/choose_device.h"

#include <utility>

#include "common/error.h"
#include "common/ops/precision.h"
#include "common/tensor/accelerator.h"

namespace lab {

namespace {

Precision precision_of(const std::string& name) {
  if (name == "tf32") return Precision::kTf32;
  if (name == "bfloat16") return Precision::kBfloat16;
  require(name == "float32", "--precision {}: it must be float32, tf32 or bfloat16", name);
  return Precision::kFloat32;
}

DeviceChoice on_cpu(std::string why, const std::string& precision) {
  set_precision(Device::kCpu, precision_of(precision));
  require(
      precision != "bfloat16" || cpu_gains_by_bfloat16(),
      "--precision bfloat16 is slower than float32 on this processor: it has AVX512-BF16 but not "
      "AMX. Use --precision float32");
  return {.device = Device::kCpu, .why = std::move(why)};
}

}  // namespace

DeviceChoice choose_device(const std::string& option, const std::string& precision,
                           int local_rank) {
  require(option == "cpu" || option == "cuda" || option == "auto",
          "--device {}: it must be cpu, cuda or auto", option);
  if (option == "cpu") return on_cpu("CPU", precision);
  const AcceleratorSupport support = accelerator_support();
  if (support.count == 0) {
    require(option == "auto", "--device cuda: {}", support.problem);
    return on_cpu(fmt::format("CPU: {}", support.problem), precision);
  }
  const int index = local_rank % support.count;
  use_accelerator(index);
  set_precision(Device::kCuda, precision_of(precision));
  return {.device = Device::kCuda,
          .why = fmt::format("{} (GPU {} of {})", accelerator().name(), index, support.count)};
}

}  // namespace lab
