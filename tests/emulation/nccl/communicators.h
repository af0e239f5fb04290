// The state of a rank's communicator.
#pragma once

#include <nccl.h>

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "tests/emulation/nccl/operation.h"

/// NCCL's name for it.
struct ncclComm {
  std::shared_ptr<lab::emulation::nccl::Clique> clique;
  std::string process;
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
  /// Or told to abort. Shared with what is in the stream, which outlives the communicator.
  std::shared_ptr<bool> ended = std::make_shared<bool>(false);
};

namespace lab::emulation::nccl {

/// Where what this rank has asked for stands: ncclSuccess once it is in the stream.
ncclResult_t progress(ncclComm& communicator);

/// Those that were not freed yet.
std::set<ncclComm_t>& live();

/// Waits until all of them may be ended, and frees them. They have been marked as ending.
void end_all(const std::vector<ncclComm_t>& communicators);
/// The same, when this thread's group ends if it has begun one.
void end_with_group(ncclComm_t communicator);

/// Adds a call to the group that this thread has begun, or makes it a group of one call.
ncclResult_t add(ncclComm_t communicator, cudaStream_t stream, Operation operation);

}  // namespace lab::emulation::nccl
