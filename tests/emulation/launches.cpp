// Launching kernels: checks of the configuration, and the loop over the blocks.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "access.h"
#include "block.h"
#include "device_limits.h"
#include "device_memory.h"
#include "dynamic_shared.h"
#include "emulated/kernel_call.h"
#include "order.h"
#include "runtime.h"
#include "settings.h"
#include "shadow.h"
#include "streams.h"

namespace lab::emulation {
namespace {

/// What cudaFuncSetAttribute allowed a kernel.
std::map<const void*, size_t>& allowed_dynamic_shared() {
  static std::map<const void*, size_t> result;
  return result;
}

cudaError_t check_configuration(const cudaLaunchConfig_t& config, const void* function) {
  const dim3 grid = config.gridDim;
  const dim3 block = config.blockDim;
  const uint64_t threads = uint64_t{block.x} * block.y * block.z;
  const bool good = grid.x > 0 && grid.y > 0 && grid.z > 0 && grid.x <= 0x7fffffffU &&
                    grid.y <= 65535 && grid.z <= 65535 && threads > 0 && threads <= kMaxThreads &&
                    block.x <= 1024 && block.y <= 1024 && block.z <= 64;
  if (!good) return cudaErrorInvalidConfiguration;
  const auto allowed = allowed_dynamic_shared().find(function);
  const size_t limit = allowed == allowed_dynamic_shared().end() ? kSharedBytes : allowed->second;
  return config.dynamicSmemBytes <= limit ? cudaSuccess : cudaErrorInvalidValue;
}

void run_kernel(KernelCall& call) {
  ++counts().launches;
  counts().most_bytes_read = 0;
  counts().most_bytes_written = 0;
  counts().device_bytes_read = 0;
  counts().device_bytes_written = 0;
  const dim3 grid = call.grid;
  start_dynamic_shared(call.dynamic_shared_bytes);
  prepare_access_checks();
  start_launch();
  std::vector<unsigned> order;
  const unsigned blocks = grid.x * grid.y * grid.z;
  fill_order(order, blocks, 0);
  for (const unsigned i : order) {
    if (i % settings().block_step != 0 && i + 1 != blocks) continue;
    const uint3 block{i % grid.x, i / grid.x % grid.y, i / grid.x / grid.y};
    start_block(block);
    Block::instance().run(call, block);
    Block::instance().count(counts());
  }
}

}  // namespace

cudaError_t launch(const cudaLaunchConfig_t* config, std::unique_ptr<KernelCall> kernel) {
  return call([&] {
    if (!config || !kernel->function) return cudaErrorInvalidDeviceFunction;
    CUstream_st* stream = find_stream(config->stream);
    if (!stream) return cudaErrorInvalidResourceHandle;
    const cudaError_t error = check_configuration(*config, kernel->function);
    if (error != cudaSuccess) return error;
    kernel->grid = config->gridDim;
    kernel->block = config->blockDim;
    kernel->dynamic_shared_bytes = config->dynamicSmemBytes;
    return enqueue(
        stream, [shared = std::shared_ptr<KernelCall>(std::move(kernel))] { run_kernel(*shared); });
  });
}

}  // namespace lab::emulation

using namespace lab::emulation;

cudaError_t cudaFuncSetAttribute(const void* function, cudaFuncAttribute attribute, int value) {
  return call([&] {
    if (!function) return cudaErrorInvalidDeviceFunction;
    if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize) return cudaSuccess;
    if (value < 0 || static_cast<size_t>(value) > kSharedBytesOptIn) return cudaErrorInvalidValue;
    allowed_dynamic_shared()[function] = static_cast<size_t>(value);
    return cudaSuccess;
  });
}

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* function) {
  return call([&] {
    if (!attributes) return cudaErrorInvalidValue;
    if (!function) return cudaErrorInvalidDeviceFunction;
    *attributes = {};
    return settings().has_code ? cudaSuccess : cudaErrorNoKernelImageForDevice;
  });
}
