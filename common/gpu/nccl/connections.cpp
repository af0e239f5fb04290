#include "common/gpu/nccl/connections.h"

#include <exception>
#include <latch>
#include <thread>
#include <vector>

#include "common/gpu/nccl/leave_behind.h"

namespace lab::nccl {
namespace {

/// How long a process waits for its communicators to end.
constexpr std::chrono::milliseconds kPatienceWithEnds{1000};

/// From this version on, communicators that are ended in a group of calls end at the same time, and
/// the first does not wait for the second.
constexpr int kFirstWithGroupsOfEnds = 22200;

int version() {
  int result = 0;
  check(ncclGetVersion(&result), "ncclGetVersion", "ending the connections between GPUs");
  return result;
}

}  // namespace

Communicator& Connections::connect(Ends ends, const std::string& unique_id, int rank, int size,
                                   const std::string& purpose) {
  return parts_->communicators.try_emplace(ends, unique_id, rank, size, purpose).first->second;
}

void Connections::close(const Patience& patience) noexcept {
  if (parts_ == nullptr) return;
  end(finalize_all(patience) ? ncclCommDestroy : ncclCommAbort);
}

void Connections::abort() noexcept { end(ncclCommAbort); }

/// All begin to end before the first is waited for, because ranks may be waiting for each other.
bool Connections::finalize_all(const Patience& patience) noexcept {
  const auto all_ready = [&] {
    for (const auto& [ends, communicator] : parts_->communicators)
      if (!communicator.ready_within(patience)) return false;
    return true;
  };
  try {
    if (!all_ready()) return false;
    for (auto& [ends, communicator] : parts_->communicators) communicator.finalize();
    return all_ready();
  } catch (const std::exception&) {
    return false;  // what has failed is aborted; its user has been told
  }
}

void Connections::end(EndOne end_one) noexcept {
  if (parts_ == nullptr) return;
  run_or_leave_behind(
      [parts = std::move(parts_), end_one]() mutable {
        end_all(*parts, end_one);
        parts = nullptr;
      },
      kPatienceWithEnds);
}

void Connections::end_all(const Parts& parts, EndOne end_one) {
  activate_gpu();
  if (version() >= kFirstWithGroupsOfEnds) {
    check(ncclGroupStart(), "ncclGroupStart", "ending the connections between GPUs");
    for (const auto& [ends, each] : parts.communicators) static_cast<void>(end_one(each.get()));
    static_cast<void>(ncclGroupEnd());
    return;
  }
  std::vector<std::jthread> threads;
  std::latch ready(static_cast<std::ptrdiff_t>(parts.communicators.size()));
  for (const auto& [ends, each] : parts.communicators)
    threads.emplace_back([&ready, end_one, communicator = each.get()] {
      activate_gpu();
      ready.arrive_and_wait();  // the GPU's driver may be busy when the first has begun
      static_cast<void>(end_one(communicator));
    });
}

}  // namespace lab::nccl
