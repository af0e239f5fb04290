// What the end of a communicator waits for.
#include <algorithm>
#include <chrono>
#include <exception>
#include <thread>

#include "tests/emulation/lock.h"
#include "tests/emulation/nccl/communicators.h"
#include "tests/emulation/runtime.h"
#include "tests/emulation/streams.h"

namespace lab::emulation::nccl {
namespace {

/// Other ranks of a machine use what would be freed. One that was never connected has none.
bool peers_end_it_too(const ncclComm& communicator) {
  const Clique& clique = *communicator.clique;
  return clique.arrived < clique.size || std::ssize(clique.ending) == clique.size;
}

/// Whether a kernel waits for other ranks, and was not told to abort.
bool spins(const ncclComm& communicator) {
  if (*communicator.ended || communicator.stream == nullptr) return false;
  if (CUstream_st* stream = find_stream(communicator.stream)) run_stream(stream);
  return communicator.ended.use_count() > 1;  // shared with what is in the stream
}

/// The device frees memory only when all kernels of the process are done.
bool others_leave_the_device(const ncclComm& communicator) {
  return std::ranges::none_of(live(), [&](const ncclComm* other) {
    return other != &communicator && other->process == communicator.process && spins(*other);
  });
}

bool may_end(const ncclComm& communicator) {
  try {
    return peers_end_it_too(communicator) && others_leave_the_device(communicator);
  } catch (...) {
    keep_error(std::current_exception());
    return true;
  }
}

/// Also for what is still in its stream.
void free_communicator(ncclComm_t communicator) {
  *communicator->ended = true;
  live().erase(communicator);
  delete communicator;
}

}  // namespace

void end_all(const std::vector<ncclComm_t>& communicators) {
  for (;;) {
    {
      const auto lock = lock_runtime();
      if (std::ranges::all_of(communicators, [](const auto* each) { return may_end(*each); })) {
        for (const ncclComm_t each : communicators) free_communicator(each);
        return;
      }
    }
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
}

}  // namespace lab::emulation::nccl
