// Collectives over NCCL, each preceded by a check that all ranks have entered the same one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
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

  /// A collective that was launched, and that nobody has waited for yet.
  struct Posted {
    Note note;
    Event compared;
    Event done;
    bool agreed = false;
  };

  /// Waits for all ranks, and throws Error if one has another tag.
  void barrier(const Transport::Call& call);

  /// The same, and then the operations that `body(communicator, stream)` launches. Returns when the
  /// GPU is done.
  template <typename Body>
  void run(const Transport::Call& call, const Body& body) {
    const Patience patience(call.timeout);
    compare_tags(call.tag, patience);
    communicator_.ask(body);
    while (!ready()) patience.pause_or_fail();
    done_.record(communicator_.stream().get());
    await_done(patience);
  }

  /// Like `run`, but returns when everything has been launched. The stream keeps the order of
  /// posted and other collectives.
  template <typename Body>
  std::shared_ptr<Posted> post(const Transport::Call& call, const Body& body) {
    const Patience patience(call.timeout);
    auto posted = std::make_shared<Posted>();
    posted->note = notes_.take();
    launch_comparison(call.tag, posted->note, posted->compared, patience);
    communicator_.ask(body);
    while (!ready()) patience.pause_or_fail();
    posted->done.record(communicator_.stream().get());
    posted_.push_back(posted);
    return posted;
  }
  /// Throws Error if it turns out that the ranks have posted different collectives.
  bool finished(const Posted& posted);

 private:
  void compare_tags(uint32_t tag, const Patience& patience);
  void launch_comparison(uint32_t tag, const Note& note, Event& compared, const Patience& patience);
  void check_posted();
  bool ready();
  void await_done(const Patience& patience);

  int rank_;
  int size_;
  Notes& notes_;
  Note note_;
  std::deque<std::shared_ptr<Posted>> posted_;  // not known to be done, in their order
  Event compared_;
  Event done_;
  bool comparing_ = false;
  Communicator& communicator_;
};

}  // namespace lab::nccl
