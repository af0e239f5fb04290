// Models and devices with names.
#pragma once

#include <string>

#include "common/tools/plan/cluster.h"
#include "common/tools/plan/estimate.h"

namespace lab {

/// "workbook": this workbook's model, 12 sequences a step. "1b", "7b", "70b": published sizes with
/// 1,024 sequences a step: TinyLlama 1.1B (Zhang et al. (2024)) and Llama 2 (Touvron et al.
/// (2023)). Throws Error listing the names.
Training training_preset(const std::string& name);

/// A device with links, and whether its figures are data-sheet ones.
struct DevicePreset {
  DeviceSpec device;
  Link inside;
  Link between;
  int per_host = 1;
  bool data_sheet = false;   // rates are its peaks: multiply by an assumed fraction
  double float32_flops = 0;  // of a data sheet, without tensor cores; device.flops: bfloat16
};

/// "cpu": a core, memory and loopback of a virtual machine with two cores of an AMD EPYC (Zen 3);
/// where the figures come from is in docs/planning.md. "a100", "h100": SXM modules with 80 GB,
/// eight per host, each with a network card (200 and 400 Gbit/s). From NVIDIA's "A100 Tensor Core
/// GPU" and "H100 Tensor Core GPU" data sheets, columns SXM: bfloat16 on tensor cores without
/// sparsity (312 and 989 TFLOP/s), float32 without them (19.5 and 67; TF32: 156 and 495), memory
/// bandwidth (2,039 and 3,350 GB/s), half of NVLink's total of both directions (600 and 900 GB/s).
/// Latencies are assumed. Throws Error listing the names.
DevicePreset device_preset(const std::string& name);

}  // namespace lab
