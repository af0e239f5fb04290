// Stands in for CUDA's header of this name when a .cu file is compiled for the emulation: the same
// names and meanings, carried out on the CPU. See docs/kernel-emulation.md.
#pragma once

#include "emulated/atomics.h"
#include "emulated/barriers.h"
#include "emulated/kernel_call.h"
#include "emulated/language.h"
#include "emulated/math.h"
#include "emulated/runtime_api.h"
#include "emulated/tensor_core.h"
#include "emulated/vector_types.h"
#include "emulated/warp.h"
