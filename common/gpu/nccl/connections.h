// Connections: the communicators of one group, which end together.
#pragma once

#include <nccl.h>

#include <map>
#include <memory>
#include <string>
#include <utility>

#include "common/gpu/nccl/communicator.h"
#include "common/gpu/nccl/notes.h"
#include "common/gpu/nccl/patience.h"

namespace lab::nccl {

/// To end a communicator, NCCL frees memory, and CUDA does that only when all kernels of the
/// process are done, including those in which other communicators wait for other ranks. So one is
/// never ended without the others.
///
/// NCCL may also wait for the other ranks of the machine to end theirs, and they may never do so.
/// After a second the communicators are left behind, with the streams and notes that their kernels
/// use: they end when they can, and the process need not wait for them.
class Connections {
 public:
  Connections() : parts_(std::make_shared<Parts>()) {}
  /// Aborts, unless they have ended.
  ~Connections() { abort(); }
  Connections(const Connections&) = delete;
  Connections& operator=(const Connections&) = delete;

  /// The connections for messages: from which rank of the group to which. All ranks end theirs in
  /// this order.
  using Ends = std::pair<int, int>;
  static constexpr Ends kCollectives{-1, -1};

  /// Begins to connect. `rank` and `size` are those within the communicator. Throws Error.
  Communicator& connect(Ends ends, const std::string& unique_id, int rank, int size,
                        const std::string& purpose);
  Notes& notes() { return parts_->notes; }

  /// Ends them in an orderly way if all ranks do so while `patience` lasts; otherwise like abort.
  void close(const Patience& patience) noexcept;
  /// Ends them and all operations in progress, including those on the GPU. Their memory is gone
  /// afterwards.
  void abort() noexcept;

 private:
  struct Parts {
    Notes notes;
    std::map<Ends, Communicator> communicators;
  };
  using EndOne = ncclResult_t (*)(ncclComm_t);

  static void end_all(const Parts& parts, EndOne end_one);
  void end(EndOne end_one) noexcept;
  bool finalize_all(const Patience& patience) noexcept;

  std::shared_ptr<Parts> parts_;  // null when they have ended
};

}  // namespace lab::nccl
