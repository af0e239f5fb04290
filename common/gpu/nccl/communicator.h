// Communicator: NCCL's connections among some ranks, which never block the thread that uses them.
#pragma once

#include <nccl.h>

#include <string>

#include "common/gpu/nccl/nccl_check.h"
#include "common/gpu/nccl/patience.h"
#include "common/gpu/nccl/stream.h"

namespace lab::nccl {

/// The id that the ranks of one communicator must share; one of them makes it, for one use.
std::string make_unique_id();

/// All NCCL calls, including connecting, proceed in the background. Make the next call only when
/// `ready`. Made and ended by Connections.
class Communicator {
 public:
  /// Begins to connect this rank. `purpose` is for error messages: "messages from rank 0 to rank
  /// 1". Throws Error.
  Communicator(const std::string& unique_id, int rank, int size, std::string purpose);
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  /// For everything launched on it.
  Stream& stream() { return stream_; }
  ncclComm_t get() const { return communicator_; }

  /// Whether the last call has been passed to the GPU (which may still be busy with it). Throws
  /// Error if that, or other work of the GPU, has failed.
  bool ready() const;
  /// Waits for that as long as `patience` lasts.
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

  /// Begins to end it in an orderly way.
  void finalize();

 private:
  Stream stream_;
  ncclComm_t communicator_ = nullptr;
  std::string purpose_;
};

}  // namespace lab::nccl
