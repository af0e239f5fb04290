#include "common/gpu/nccl/collectives.h"

#include "common/error.h"

namespace lab::nccl {
namespace {

// The largest of all tags, and of all their complements: both equal a rank's own only if its tag is
// both the largest and the smallest, that is, if all are equal.
NoteText text_of(uint32_t tag) { return {{tag, ~uint64_t{tag}}}; }

void require_same(const Note& note) {
  require(*note.host_own == *note.host_other,
          "the ranks have entered different collectives, or with different sizes: all must call "
          "the same ones in the same order");
}

}  // namespace

Collectives::Collectives(Connections& connections, const std::string& unique_id, int rank, int size,
                         std::chrono::milliseconds timeout)
    : rank_(rank),
      size_(size),
      notes_(connections.notes()),
      note_(connections.notes().take()),
      communicator_(connections.connect(Connections::kCollectives, unique_id, rank, size,
                                        fmt::format("collectives of {} ranks", size))) {
  require(communicator_.ready_within(Patience(timeout)),
          "connecting the GPUs of {} ranks: no answer within {}: has every rank been started, and "
          "can they reach each other (NCCL_SOCKET_IFNAME names the network)?",
          size, seconds(timeout));
}

void Collectives::barrier(const Transport::Call& call) {
  const Patience patience(call.timeout);
  compare_tags(call.tag, patience);
  done_.record(communicator_.stream().get());
  await_done(patience);
}

void Collectives::compare_tags(uint32_t tag, const Patience& patience) {
  comparing_ = false;
  launch_comparison(tag, note_, compared_, patience);
  comparing_ = true;
}

void Collectives::launch_comparison(uint32_t tag, const Note& note, Event& compared,
                                    const Patience& patience) {
  done_.record_computation();
  communicator_.stream().follow(done_);
  *note.host_own = text_of(tag);
  note.send_own_to_gpu(communicator_.stream().get());
  communicator_.ask([&](ncclComm_t communicator, cudaStream_t stream) {
    return ncclAllReduce(note.gpu_own, note.gpu_other, 2, ncclUint64, ncclMax, communicator,
                         stream);
  });
  while (!ready()) patience.pause_or_fail();
  note.fetch_other_from_gpu(communicator_.stream().get());
  compared.record(communicator_.stream().get());
}

bool Collectives::finished(const Posted& posted) {
  check_posted();
  return posted.done.happened();
}

void Collectives::check_posted() {
  for (const auto& posted : posted_) {
    if (posted->agreed) continue;
    if (!posted->compared.happened()) break;
    require_same(posted->note);
    posted->agreed = true;
  }
  while (!posted_.empty() && posted_.front()->agreed && posted_.front()->done.happened()) {
    notes_.give_back(posted_.front()->note);
    posted_.pop_front();
  }
}

/// Waits for the communicator; compares the tags as soon as they are there, since the operation
/// after them may never finish if they differ.
bool Collectives::ready() {
  const bool result = communicator_.ready();
  if (comparing_ && compared_.happened()) {
    comparing_ = false;
    require_same(note_);
  }
  check_posted();
  return result;
}

void Collectives::await_done(const Patience& patience) {
  while (!ready() || !done_.happened()) patience.pause_or_fail();
  static_cast<void>(ready());  // the tags, in case both finished at once
}

}  // namespace lab::nccl
