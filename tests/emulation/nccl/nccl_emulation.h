// What a test may set and ask of the stand-in for NCCL. Its ranks are threads of one process that
// share the emulated device, and:
//
// - An operation is done when all its ranks have asked for it and one of them polls its stream, or
//   waits for it. Ranks that ask for different collectives, or for messages of different sizes,
//   never finish. (What NCCL does then is not defined.)
// - Messages of few bytes leave before their receiver has come, as with NCCL.
// - Whatever is asked of a communicator takes some calls of ncclCommGetAsyncError until it has been
//   handed over; the first message between two ranks also waits until both have asked for one. A
//   communicator that is used before that refuses.
// - Two threads that pass for the same GPU (set_bus_of_thread) of one host (NCCL_HOSTID) are
//   refused, as by NCCL.
// - Of a group, all calls must be for one communicator and one stream, but it may end several.
// - What ends a communicator returns when all its ranks have begun to end it, and when no kernel
//   runs in this process but those of communicators that were told to abort. Ends in one group
//   begin together, from version 2.22 on.
#pragma once

#include <nccl.h>

#include <cstddef>
#include <string>

namespace lab::emulation::nccl {

struct Settings {
  /// As ncclGetVersion has it.
  int version = 22809;
  /// Calls of ncclCommGetAsyncError that say ncclInProgress after each request.
  int polls = 2;
  /// The largest message that leaves before its receiver has come.
  size_t buffer_bytes = 64;
  /// Rank `failing_rank` of each communicator of `failing_size` ranks finds `failure` when it asks
  /// for its operation number `failing_operation`, counted from 1; the operation never finishes.
  int failing_size = 0;
  int failing_rank = 0;
  long failing_operation = 0;
  ncclResult_t failure = ncclSystemError;
};
Settings& settings();

/// Makes this thread, and the threads that it will start, pass for a process.
void be_process(const std::string& name);

/// Those that were neither destroyed nor aborted.
int live_communicators();

}  // namespace lab::emulation::nccl
