// The state of a rank's communicator.
#pragma once

#include <nccl.h>

#include <memory>
#include <string>

#include "tests/emulation/nccl/operation.h"

/// NCCL's name for it.
struct ncclComm {
  std::shared_ptr<lab::emulation::nccl::Clique> clique;
  int rank = 0;
  int polls = 0;  // that will still be answered with ncclInProgress
  bool connected = false;
  ncclResult_t error = ncclSuccess;
  std::string last_error;
  long operations = 0;     // asked for so far: groups, or single calls
  size_t collectives = 0;  // of these
  /// Asked for, but not yet in the stream.
  lab::emulation::nccl::Operations pending;
  cudaStream_t stream = nullptr;
  /// Shared with what is in the stream, which outlives the communicator.
  std::shared_ptr<bool> ended = std::make_shared<bool>(false);
};

namespace lab::emulation::nccl {

/// Where what this rank has asked for stands: ncclSuccess once it is in the stream.
ncclResult_t progress(ncclComm& communicator);

/// Adds a call to the group that this thread has begun, or makes it one by itself.
ncclResult_t add(ncclComm_t communicator, cudaStream_t stream, Operation operation);

}  // namespace lab::emulation::nccl
