// Communicator: NCCL's connections among some ranks, which never block the thread that uses them.
#pragma once

#include <nccl.h>

#include <string>

#include "common/gpu/nccl/nccl_check.h"
#include "common/gpu/nccl/patience.h"
#include "common/gpu/nccl/stream.h"

namespace lab::nccl {

/// What the ranks of one communicator must have in common; made by one of them, for one use.
std::string make_unique_id();

/// Everything NCCL is asked for, connecting included, goes on in the background. Ask for the next
/// thing only when `ready`. Made and ended by Connections.
class Communicator {
 public:
  /// Begins to connect this rank. `purpose` is for messages: "messages from rank 0 to rank 1".
  /// Throws Error.
  Communicator(const std::string& unique_id, int rank, int size, std::string purpose);
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  /// For all that it is asked for.
  Stream& stream() { return stream_; }
  ncclComm_t get() const { return communicator_; }

  /// Whether what was asked for last has been handed to the GPU (which may still be busy with it).
  /// Throws Error when that, or something that the GPU was doing, has failed.
  bool ready() const;
  /// Waits for that as long as there is patience.
  bool ready_within(const Patience& patience) const;

  /// Calls `body(communicator, stream)`, which calls functions of NCCL and returns their first
  /// failure. They become one operation.
  template <typename Body>
  void ask(const Body& body) {
    check(ncclGroupStart(), "ncclGroupStart", "{}", purpose_);
    const ncclResult_t asked = body(communicator_, stream_.get());
    const ncclResult_t end = ncclGroupEnd();
    check(asked, "what was asked of NCCL", "{}", purpose_);
    check(end, "ncclGroupEnd", "{}", purpose_);
  }

  /// Begins to end it in good order.
  void finalize();

 private:
  Stream stream_;
  ncclComm_t communicator_ = nullptr;
  std::string purpose_;
};

}  // namespace lab::nccl
