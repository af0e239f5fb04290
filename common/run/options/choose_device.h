// --device: the device on which a program computes.
#pragma once

#include <string>

#include "common/tensor/tensor.h"

namespace lab {

/// "cpu"; "cuda": a GPU, or an error that says what is missing; "auto": a GPU if there is one.
/// Several ranks of one machine take its G GPUs in turn: rank r has GPU r mod G, and ranks may
/// share one.
struct DeviceChoice {
  Device device = Device::kCpu;
  std::string why;  // "NVIDIA H200 (GPU 0 of 1)", "CPU: this build has no CUDA"
};

/// Opens the device for this process. `local_rank`: its number among the ranks of its machine.
/// `precision`: "float32", "tf32" or "bfloat16" (see Precision). Throws Error for "cuda" without a
/// usable GPU, and for a precision that the device does not have (see set_precision)
/// or that would be slower on it (cpu_gains_by_bfloat16).
DeviceChoice choose_device(const std::string& option, const std::string& precision = "float32",
                           int local_rank = 0);

}  // namespace lab
