#include "common/tensor/spin_control.h"

#include <omp.h>

#include <algorithm>
#include <condition_variable>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <stop_token>
#include <string>
#include <system_error>

namespace lab {
namespace {

using std::chrono::steady_clock;

constexpr std::chrono::milliseconds kBetweenLooks{100};
/// Of two programs that want one core, each waits half of the time; on an idle machine a thread of
/// ours waited for less than 8 % of it.
constexpr double kScarce = 0.15;
constexpr int kCalmLooks = 2;  // until cores count as free again

void hold_idle_team() {
#pragma omp parallel num_threads(omp_get_num_procs() + 1)
  asm volatile("");  // a compiler removes an empty loop
}

/// Of the calling thread.
void end_idle_team() { omp_pause_resource(omp_pause_soft, omp_get_initial_device()); }

void watch(const std::stop_token& stop) {
  std::mutex mutex;
  std::condition_variable_any nobody_calls;
  CoreWaits waits;
  auto last_look = steady_clock::now();
  int calm_looks = kCalmLooks;
  for (;;) {
    std::unique_lock lock(mutex);
    if (nobody_calls.wait_for(lock, stop, kBetweenLooks, [&] { return stop.stop_requested(); }))
      return;
    const auto now = steady_clock::now();
    const bool scarce = waits.longest() >= kScarce * (now - last_look);
    last_look = now;
    if (scarce && calm_looks >= kCalmLooks) hold_idle_team();
    if (scarce)
      calm_looks = 0;
    else if (++calm_looks == kCalmLooks)
      end_idle_team();
  }
}

}  // namespace

SpinControl::SpinControl() {
  if (std::getenv("GOMP_SPINCOUNT") == nullptr && std::getenv("OMP_WAIT_POLICY") == nullptr &&
      omp_get_max_threads() > 1)
    watcher_ = std::jthread(watch);
}

CoreWaits::ByThread CoreWaits::so_far() {
  namespace fs = std::filesystem;
  ByThread waits;
  std::error_code error;
  for (fs::directory_iterator task("/proc/self/task", error), end; task != end;
       task.increment(error)) {
    std::ifstream file(task->path() / "schedstat");  // a thread may end at any time
    int64_t ran = 0;
    int64_t waited = 0;
    if (file >> ran >> waited) waits[std::stoi(task->path().filename())] = waited;
  }
  return waits;
}

std::chrono::nanoseconds CoreWaits::longest() {
  const ByThread now = so_far();
  int64_t longest = 0;
  for (const auto& [thread, waited] : now)
    if (const auto before = before_.find(thread); before != before_.end())
      longest = std::max(longest, waited - before->second);
  before_ = now;
  return std::chrono::nanoseconds(longest);
}

}  // namespace lab
