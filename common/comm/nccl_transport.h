// Messages between GPUs by NCCL, without a detour through host memory.
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

/// To be called before the process first looks at its GPUs, if it may talk over NCCL: sets, unless
/// they are set, variables of CUDA that it reads only then.
void prepare_for_nccl();

/// Connects this rank's GPU (lab::accelerator()) with those of all other ranks of the world; they
/// find each other through `store`, which must outlive the transport. All spans given to it are GPU
/// memory. Throws Error if a rank does not come in time, or if two ranks use the same GPU: NCCL
/// wants one each.
///
/// Work of the GPU that was asked for before a message is done before the message reads or writes
/// its memory; when an operation has returned (Transfer::wait, or a collective), the memory may be
/// used.
///
/// Messages between two ranks in one direction arrive in the order in which they were sent: NCCL
/// has no tags. If the receiver has posted them in another order, waiting for them throws Error on
/// both sides; if it expects another size, both may wait until the deadline. So do collectives
/// throw, on every rank, when the ranks have entered different ones.
///
/// After any Error the connections of the group are closed, and later calls say so.
std::unique_ptr<Transport> connect_nccl(const NcclOptions& options, Store& store);

}  // namespace lab
