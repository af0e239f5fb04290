// Collectives over NCCL, each preceded by a check that all ranks have entered the same one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "common/comm/transport.h"
#include "common/gpu/nccl/connections.h"
#include "common/gpu/nccl/notes.h"
#include "common/gpu/nccl/patience.h"
#include "common/gpu/nccl/stream.h"

namespace lab::nccl {

/// NCCL's behaviour is undefined if ranks enter different collectives: it may wait forever or mix
/// their numbers. So the tags are compared first, by a tiny reduction on the same stream; if they
/// differ, all ranks throw.
class Collectives {
 public:
  /// Connects all ranks of a group. Throws Error if that takes longer than `timeout`.
  Collectives(Connections& connections, const std::string& unique_id, int rank, int size,
              std::chrono::milliseconds timeout);

  int rank() const { return rank_; }
  int size() const { return size_; }

  /// Waits for all ranks, and throws Error if one has another tag.
  void barrier(const Transport::Collective& call);

  /// The same, and then the operations that `body(communicator, stream)` launches. Returns when the
  /// GPU is done.
  template <typename Body>
  void run(const Transport::Collective& call, const Body& body) {
    const Patience patience(call.timeout);
    compare_tags(call.tag, patience);
    communicator_.ask(body);
    while (!ready()) patience.pause_or_fail();
    done_.record(communicator_.stream().get());
    await_done(patience);
  }

 private:
  void compare_tags(uint32_t tag, const Patience& patience);
  bool ready();
  void await_done(const Patience& patience);

  int rank_;
  int size_;
  Note note_;
  Event compared_;
  Event done_;
  bool comparing_ = false;
  Communicator& communicator_;
};

}  // namespace lab::nccl
