// Scheduler: implementation with one condition variable per rank.
#include "common/comm/sim/scheduler.h"

#include <thread>
#include <utility>

namespace lab {

Scheduler::Scheduler(int ranks, std::optional<uint64_t> seed, std::function<void()> when_stuck)
    : when_stuck_(std::move(when_stuck)),
      ready_(static_cast<size_t>(ranks), [] { return true; }),
      woken_(static_cast<size_t>(ranks)) {
  if (seed) random_.emplace(*seed);
}

void Scheduler::run(const std::function<void(int)>& body) {
  std::vector<std::jthread> threads;  // joined at the end of this function, however it ends
  const auto rank_main = [&](int rank) {
    if (!take_baton(rank)) return;
    body(rank);
    ready_[static_cast<size_t>(rank)] = nullptr;
    pass_baton();
  };
  try {
    const int ranks = static_cast<int>(ready_.size());
    for (int rank = 0; rank < ranks; ++rank) threads.emplace_back(rank_main, rank);
  } catch (...) {
    const std::lock_guard lock(mutex_);
    called_off_ = true;
    for (auto& woken : woken_) woken.notify_one();
    throw;
  }
  pass_baton();
}

void Scheduler::wait_until(int rank, const std::function<bool()>& ready) {
  if (ready()) return;
  ready_[static_cast<size_t>(rank)] = ready;
  pass_baton();
  take_baton(rank);
}

// Chooses the next rank. Called by whoever has the baton.
void Scheduler::pass_baton() {
  bool all_ended = true;
  for (const auto& ready : ready_) all_ended = all_ended && !ready;
  if (all_ended) return;

  std::vector<int> able = ready_ranks();
  while (able.empty()) {
    when_stuck_();
    able = ready_ranks();
  }
  const size_t choice = random_ ? (*random_)() % able.size() : 0;
  const std::lock_guard lock(mutex_);
  holder_ = able[choice];
  woken_[static_cast<size_t>(holder_)].notify_one();
}

// Sleeps until this rank has the baton. False: it never will.
bool Scheduler::take_baton(int rank) {
  std::unique_lock lock(mutex_);
  woken_[static_cast<size_t>(rank)].wait(lock, [&] { return holder_ == rank || called_off_; });
  return holder_ == rank;
}

std::vector<int> Scheduler::ready_ranks() const {
  std::vector<int> able;
  for (size_t rank = 0; rank < ready_.size(); ++rank)
    if (ready_[rank] && ready_[rank]()) able.push_back(static_cast<int>(rank));
  return able;
}

}  // namespace lab
