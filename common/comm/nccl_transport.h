// Messages between GPUs by NCCL, without a copy through host memory.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "common/comm/store/store.h"
#include "common/comm/transport.h"

namespace lab {

struct NcclOptions {
  int rank = 0;
  int size = 1;
  std::chrono::milliseconds timeout{600'000};
};

/// Why NCCL cannot be used here ("this build has no NCCL: ..."), or "".
std::string nccl_problem();

/// Call it before the process first uses its GPUs, if it may use NCCL: sets environment variables
/// that CUDA reads only then, unless they are set already.
void prepare_for_nccl();

/// Connects this rank's GPU (lab::accelerator()) to those of all other ranks of the world; they
/// find each other through `store`, which must outlive the transport. All spans passed to the
/// transport are GPU memory. Throws Error if a rank does not arrive in time, or if two ranks use
/// the same GPU: NCCL needs one each.
///
/// GPU work launched before a message is finished before the message reads or writes its memory.
/// When an operation has returned (Transfer::wait, or a collective), the memory may be used.
///
/// Messages between two ranks in one direction arrive in the order in which they were sent: NCCL
/// has no tags. If the receiver has posted them in another order, waiting for them throws Error on
/// both sides; if it expects another size, both may wait until the deadline. Likewise, collectives
/// throw on every rank if the ranks have entered different ones. Posted collectives run in the same
/// stream as blocking ones, next to computations; when they start is not known, so the record has
/// the time of posting, and for their end that of the wait.
///
/// After any Error the connections of the group are closed, and later calls say so.
std::unique_ptr<Transport> connect_nccl(const NcclOptions& options, Store& store);

}  // namespace lab
