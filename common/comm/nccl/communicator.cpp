// See communicator.h.
#include "common/comm/nccl/communicator.h"

#include <cstring>
#include <exception>
#include <utility>

#include "common/tensor/error.h"

namespace lab::nccl {

std::string make_unique_id() {
  ncclUniqueId id;
  check(ncclGetUniqueId(&id), "ncclGetUniqueId", "connecting GPUs");
  return {id.internal, sizeof(id.internal)};
}

Communicator::Communicator(const std::string& unique_id, int rank, int size, std::string purpose)
    : purpose_(std::move(purpose)) {
  ncclUniqueId id;
  require(unique_id.size() == sizeof(id.internal),
          "{}: NCCL's id has {} bytes instead of {}: were all ranks built with the same NCCL?",
          purpose_, unique_id.size(), sizeof(id.internal));
  std::memcpy(id.internal, unique_id.data(), sizeof(id.internal));
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  check(ncclCommInitRankConfig(&communicator_, size, id, rank, &config), "ncclCommInitRankConfig",
        "{}", purpose_);
}

Communicator::~Communicator() { abort(); }

bool Communicator::ready() const {
  ncclResult_t state = ncclSuccess;
  check(ncclCommGetAsyncError(communicator_, &state), "ncclCommGetAsyncError", "{}", purpose_);
  if (state == ncclInProgress) return false;
  require(state == ncclSuccess, "{}: {}", purpose_, explain(state, communicator_));
  return true;
}

bool Communicator::ready_within(const Patience& patience) const {
  while (!ready()) {
    if (patience.over()) return false;
    patience.pause();
  }
  return true;
}

/// Whether everything has been taken down, so that destroying does not block.
bool Communicator::finalize(std::chrono::milliseconds grace) const {
  const Patience patience(grace);
  if (!ready_within(patience)) return false;
  check(ncclCommFinalize(communicator_), "ncclCommFinalize", "{}", purpose_);
  return ready_within(patience);
}

void Communicator::close(std::chrono::milliseconds grace) noexcept {
  if (communicator_ == nullptr) return;
  try {
    if (finalize(grace)) {
      static_cast<void>(ncclCommDestroy(communicator_));
      communicator_ = nullptr;
    }
  } catch (const std::exception&) {
    // What has failed is aborted; whoever used it has been told.
  }
  abort();
}

void Communicator::abort() noexcept {
  if (communicator_ == nullptr) return;
  static_cast<void>(ncclCommAbort(communicator_));
  communicator_ = nullptr;
}

}  // namespace lab::nccl
