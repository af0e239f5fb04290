#include "common/gpu/nccl/communicator.h"

#include <cstring>
#include <utility>

#include "common/error.h"

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

void Communicator::finalize() {
  check(ncclCommFinalize(communicator_), "ncclCommFinalize", "{}", purpose_);
}

}  // namespace lab::nccl
