// What NCCL's error codes mean, and what to do about them.
#include "common/gpu/nccl/nccl_check.h"

#include <string_view>

#include "common/error.h"

namespace lab::nccl {
namespace {

const char* meaning(ncclResult_t status) {
  switch (status) {
    case ncclUnhandledCudaError:
      return "a call of CUDA failed within NCCL, often for want of GPU memory";
    case ncclSystemError:
      return "a call of the operating system failed within NCCL, often for a socket "
             "(NCCL_SOCKET_IFNAME names the network) or for shared memory (/dev/shm)";
    case ncclRemoteError:
      return "another rank has gone, or the network broke";
    case ncclInvalidUsage:
    case ncclInvalidArgument:
      return "NCCL was asked to do something that it cannot";
    default:
      return "a fault within NCCL";
  }
}

/// NCCL's texts contain their own remedies in brackets; ours follows.
std::string_view without_brackets(std::string_view text) { return text.substr(0, text.find(" (")); }

}  // namespace

std::string explain(ncclResult_t status, ncclComm_t communicator) {
  const char* last = ncclGetLastError(communicator);
  const std::string_view detail = last == nullptr ? "" : last;
  return fmt::format("NCCL: {}{}{}: {} (set NCCL_DEBUG=WARN to see more)",
                     without_brackets(ncclGetErrorString(status)), detail.empty() ? "" : ", ",
                     detail, meaning(status));
}

void fail_call(ncclResult_t status, const char* call, const std::string& purpose) {
  fail("{}: {} failed: {}", purpose, call, explain(status));
}

}  // namespace lab::nccl
