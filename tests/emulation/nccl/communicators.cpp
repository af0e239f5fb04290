// Making, asking about and ending communicators.
#include "tests/emulation/nccl/communicators.h"

#include <fmt/format.h>
#include <pthread.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "tests/emulation/lock.h"
#include "tests/emulation/nccl/nccl_emulation.h"
#include "tests/emulation/runtime.h"

namespace lab::emulation::nccl {
namespace {

struct World {
  int ids = 0;
  std::set<ncclComm_t> live;
  std::map<std::string, std::weak_ptr<Clique>> cliques;  // by id
};

World& world() {
  static World result;
  return result;
}

std::shared_ptr<Clique> clique_of(const std::string& id, int size) {
  std::weak_ptr<Clique>& known = world().cliques[id];
  std::shared_ptr<Clique> clique = known.lock();
  if (clique == nullptr) known = clique = std::make_shared<Clique>(size);
  return clique;
}

/// Host and bus of the GPU for which this thread passes; "" if for none in particular.
std::string place_of_this_thread() {
  if (bus_of_thread() < 0) return "";
  const char* host = std::getenv("NCCL_HOSTID");
  return fmt::format("{} {}", host == nullptr ? "" : host, bus_of_thread());
}

void refuse_duplicates(ncclComm& communicator) {
  const std::vector<std::string>& places = communicator.clique->places;
  for (size_t a = 0; a < places.size(); ++a)
    for (size_t b = a + 1; b < places.size(); ++b) {
      if (places[a].empty() || places[a] != places[b]) continue;
      communicator.error = ncclInvalidUsage;
      communicator.last_error = fmt::format("Duplicate GPU detected : rank {} and rank {}", a, b);
    }
}

/// Linux hands the name of a thread on to those that it starts.
std::string process_of_this_thread() {
  std::array<char, 16> name{};
  pthread_getname_np(pthread_self(), name.data(), name.size());
  return name.data();
}

}  // namespace

Settings& settings() {
  static Settings result;
  return result;
}

void be_process(const std::string& name) { pthread_setname_np(pthread_self(), name.c_str()); }

std::set<ncclComm_t>& live() { return world().live; }

int live_communicators() {
  const auto lock = lock_runtime();
  return static_cast<int>(live().size());
}

}  // namespace lab::emulation::nccl

using namespace lab::emulation;
using namespace lab::emulation::nccl;

ncclResult_t ncclGetVersion(int* version) {
  *version = nccl::settings().version;
  return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  const auto lock = lock_runtime();
  *id = {};
  std::snprintf(id->internal, sizeof(id->internal), "emulated %d", ++world().ids);
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* communicator, int size, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  const auto lock = lock_runtime();
  if (config == nullptr || config->blocking != 0) return ncclInvalidUsage;
  if (rank < 0 || rank >= size) return ncclInvalidArgument;
  auto made = std::make_unique<ncclComm>();
  made->clique = clique_of({id.internal, strnlen(id.internal, sizeof(id.internal))}, size);
  if (made->clique->size != size || made->clique->arrived == size) return ncclInvalidUsage;
  made->process = process_of_this_thread();
  made->rank = rank;
  made->polls = nccl::settings().polls;
  made->clique->places[static_cast<size_t>(rank)] = place_of_this_thread();
  ++made->clique->arrived;
  *communicator = made.release();
  live().insert(*communicator);
  return ncclInProgress;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t communicator, ncclResult_t* state) {
  const auto lock = lock_runtime();
  if (communicator == nullptr || state == nullptr) return ncclInvalidArgument;
  if (communicator->error == ncclSuccess && !communicator->connected &&
      communicator->clique->arrived == communicator->clique->size) {
    communicator->connected = true;
    refuse_duplicates(*communicator);
  }
  *state = progress(*communicator);
  return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t communicator) {
  const auto lock = lock_runtime();
  if (communicator == nullptr || progress(*communicator) != ncclSuccess) return ncclInvalidArgument;
  communicator->polls = nccl::settings().polls;
  return ncclInProgress;
}

ncclResult_t ncclCommDestroy(ncclComm_t communicator) {
  auto lock = lock_runtime();
  if (communicator == nullptr || progress(*communicator) != ncclSuccess) return ncclInvalidArgument;
  communicator->clique->ending.insert(communicator->rank);
  lock.unlock();
  end_with_group(communicator);
  return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t communicator) {
  auto lock = lock_runtime();
  if (communicator == nullptr) return ncclInvalidArgument;
  *communicator->ended = true;
  communicator->clique->ending.insert(communicator->rank);
  lock.unlock();
  end_with_group(communicator);
  return ncclSuccess;
}

const char* ncclGetErrorString(ncclResult_t result) {
  switch (result) {
    case ncclSuccess:
      return "no error";
    case ncclUnhandledCudaError:
      return "unhandled cuda error (run with NCCL_DEBUG=INFO for details)";
    case ncclSystemError:
      return "unhandled system error (run with NCCL_DEBUG=INFO for details)";
    case ncclRemoteError:
      return "remote process exited or there was a network error";
    case ncclInvalidArgument:
      return "invalid argument (run with NCCL_DEBUG=WARN for details)";
    case ncclInvalidUsage:
      return "invalid usage (run with NCCL_DEBUG=WARN for details)";
    default:
      return "internal error - please report this issue to the NCCL developers";
  }
}

const char* ncclGetLastError(ncclComm_t communicator) {
  return communicator == nullptr ? "" : communicator->last_error.c_str();
}
