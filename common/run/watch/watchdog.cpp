// Publishes snapshots, reads the verdict.
#include "common/run/watch/watchdog.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <mutex>
#include <optional>
#include <thread>

#include "common/comm/diagnosis/diagnosis.h"
#include "common/error.h"
#include "common/io/terminal.h"
#include "common/run/rendezvous/job_keys.h"
#include "common/run/rendezvous/process_state.h"
#include "common/run/watch/judge.h"

namespace lab {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kFarewell{2000};  // for the others to read the verdict
constexpr milliseconds kAnswer{4000};
// For rank 0 to judge: two seconds, or until it is clear that a host is gone.
constexpr milliseconds kLastWords = Judge::kSilence + milliseconds(3000);
constexpr milliseconds kOwnWords{300};  // for the main thread to notice a loss on its own

[[noreturn]] void end_process() {
  alarm(1);  // in case nobody reads what this process has printed
  if (ftrylockfile(stdout) == 0) std::fflush(stdout);
  _exit(kDiagnosedExit);
}

}  // namespace

struct Watchdog::Impl {
  Store& store;
  const FlightRecorder& recorder;
  int rank;
  bool launcher_judges;
  std::vector<RankIdentity> ranks;
  std::optional<Judge> judge;

  std::mutex mutex;
  std::condition_variable changed;
  bool stopping = false;
  bool failing = false;  // an exception ends this rank
  bool ending = false;   // the watchdog ends this process
  bool judged = false;
  std::thread thread;

  Impl(Store& the_store, const FlightRecorder& own, const RankEnvironment& environment,
       std::vector<RankIdentity> all)
      : store(the_store),
        recorder(own),
        rank(environment.rank),
        launcher_judges(environment.store_is_served),
        ranks(std::move(all)) {
    if (rank == 0 && !launcher_judges)
      judge.emplace(store, environment.world_size, [this](int other) { return fate_of(other); });
    thread = std::thread([this] { run(); });
  }

  std::optional<Fate> fate_of(int other) const {
    if (other == rank) return Fate{};
    if (!is_near(other)) return std::nullopt;
    return fate_of_process(ranks[static_cast<size_t>(other)].pid);
  }

  bool is_near(int other) const {
    return ranks[static_cast<size_t>(other)].space == ranks[static_cast<size_t>(rank)].space;
  }

  /// False once the watchdog is no longer needed.
  bool pause(milliseconds time) {
    std::unique_lock lock(mutex);
    return !changed.wait_for(lock, time, [this] { return stopping; });
  }

  void run() {
    try {
      do attempt_step();
      while (!judged_already() && pause(Judge::kBeat));
      publish();
    } catch (const std::exception& error) {
      if (!launcher_judges && !judged_already()) store_is_lost(why_lost(error.what()));
    }
  }

  /// Whatever holds the store's process, a debugger or Ctrl-Z, holds the store. It may go on later;
  /// if a launcher has ended instead, so has this process.
  void attempt_step() {
    const bool held = launcher_judges || is_first_rank_traced();
    try {
      step();
    } catch (const Error&) {
      if (!held && !is_first_rank_traced()) throw;
    }
  }

  bool is_first_rank_traced() const {
    return rank != 0 && is_near(0) && process_state(ranks[0].pid) == ProcessState::kTraced;
  }

  bool judged_already() {
    const std::lock_guard lock(mutex);
    return judged;
  }

  void step() {
    if (launcher_judges) return publish();
    check_first_rank();
    check_store();
    publish();
    if (judge) {
      auto diagnosis = judge->look();
      if (!diagnosis) diagnosis = judge->rank_with_error();
      if (diagnosis) pronounce(*diagnosis);
    } else if (const auto verdict = store.try_get(job_keys::kVerdict)) {
      obey(*verdict);
    }
  }

  void publish() { store.set(job_keys::snapshot(rank), encode_snapshot(recorder.snapshot())); }

  /// From another host, all that shows of a pulled cable is that no answer arrives.
  void check_store() {
    require(store.get_within(job_keys::kWorldSize, kAnswer).has_value(),  // it is set
            "its store has not answered for {} s: check its machine and the network",
            std::chrono::duration_cast<std::chrono::seconds>(kAnswer).count());
  }

  /// A store in a folder remains when rank 0 ends; one whose server is stopped does not answer.
  void check_first_rank() {
    if (rank == 0 || !is_near(0)) return;
    const ProcessState state = process_state(ranks[0].pid);
    require(state != ProcessState::kGone, "its process {} has ended", ranks[0].pid);
    if (state == ProcessState::kStopped && pause(TwoLooks::kBetween))
      require(process_state(ranks[0].pid) != ProcessState::kStopped, "its process {} is stopped",
              ranks[0].pid);
  }

  void pronounce(const Diagnosis& diagnosis) {
    const bool is_own_error = diagnosis.details.empty();  // its rank has printed it
    // Counted before the verdict is there: a rank that sees it counts itself and ends.
    const auto listeners = std::ranges::count_if(judge->read(), [&](const RankSnapshot& other) {
      return other.rank != rank && other.fate == RankFate::kRunning && !other.left;
    });
    store.set(job_keys::kVerdict,
              fmt::format("{} {}", is_own_error ? diagnosis.ranks[0] : -1, diagnosis.headline));
    decide(is_own_error && diagnosis.ranks[0] == rank);
    if (!is_own_error || diagnosis.ranks[0] != rank)
      print_if_possible(stderr, "error: {}\n", diagnosis.text());
    const auto deadline = Clock::now() + kFarewell;
    while (store.add(job_keys::kVerdictSeen, 0) < listeners && Clock::now() < deadline)
      std::this_thread::sleep_for(milliseconds(10));
    finish();
  }

  void obey(const std::string& verdict) {
    const size_t space = verdict.find(' ');
    const bool is_mine = verdict.substr(0, space) == std::to_string(rank);
    decide(is_mine);
    if (!is_mine) print_if_possible(stderr, "rank {} ends: {}\n", rank, verdict.substr(space + 1));
    try {
      store.add(job_keys::kVerdictSeen, 1);
    } catch (const std::exception&) {  // rank 0 ends as soon as it has counted the last rank
    }
    finish();
  }

  /// The watchdog ends this process, unless the job ends because of an exception of this very rank.
  /// Any other exception of the main thread is only a consequence of other ranks leaving.
  void decide(bool mine) {
    const std::lock_guard lock(mutex);
    ending = !(failing && mine);
  }

  /// Ends the process, unless its main thread is about to.
  void finish() {
    {
      const std::lock_guard lock(mutex);
      judged = true;
      if (ending) end_process();
    }
    changed.notify_all();
  }

  /// If rank 0 was stopped during a request, its process tells more than the request that failed.
  std::string why_lost(const std::string& of_request) {
    try {
      check_first_rank();
    } catch (const Error& of_process) {
      return of_process.what();
    }
    return of_request;
  }

  void store_is_lost(const std::string& reason) {
    std::unique_lock lock(mutex);
    if (changed.wait_for(lock, kOwnWords, [this] { return stopping || failing; })) {
      if (!stopping) print_if_possible(stderr, "rank {} ends: rank 0 is gone ({})\n", rank, reason);
      judged = true;
      changed.notify_all();
      return;
    }
    ending = true;
    const RankSnapshot now = recorder.snapshot();
    const OpRecord* operation = now.waiting();
    print_if_possible(
        stderr, "error: rank 0 is gone ({}), while rank {} {}\n", reason, rank,
        operation == nullptr ? "was between operations" : "waited in " + describe(*operation, now));
    end_process();
  }
};

Watchdog::Watchdog(Store& store, const FlightRecorder& recorder, const RankEnvironment& environment,
                   std::vector<RankIdentity> ranks)
    : impl_(std::make_unique<Impl>(store, recorder, environment, std::move(ranks))) {}

Watchdog::~Watchdog() {
  {
    const std::lock_guard lock(impl_->mutex);
    impl_->stopping = true;
  }
  impl_->changed.notify_all();
  impl_->thread.join();
}

bool Watchdog::last_words() {
  if (impl_->launcher_judges) return false;
  std::unique_lock lock(impl_->mutex);
  if (impl_->ending) impl_->changed.wait(lock, [] { return false; });
  impl_->failing = true;
  impl_->changed.notify_all();
  return impl_->changed.wait_for(lock, kLastWords, [this] { return impl_->judged; });
}

}  // namespace lab
