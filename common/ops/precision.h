// The precision in which the devices of this process compute.
#pragma once

#include "common/tensor/accelerator.h"
#include "common/tensor/tensor.h"

namespace lab {

/// Initially Precision::kFloat32, on every device.
Precision precision(Device device);

/// From the next microbatch on. Throws Error for a precision that the device does not have.
void set_precision(Device device, Precision precision);

/// Whether the processor has instructions that multiply numbers in bfloat16 and add the products in
/// float32 (AVX512-BF16, AMX).
bool cpu_has_bfloat16();

/// Whether they make training faster. Intel's AVX512-BF16 does not: it multiplies as many numbers a
/// cycle as float32's instructions, and rounding comes on top (docs/measurements.md).
bool cpu_gains_by_bfloat16();

}  // namespace lab
