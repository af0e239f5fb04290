// Finds out which ranks are there, which are missing, and which should not be there.
#include "common/run/rendezvous/rendezvous.h"

#include <unistd.h>

#include <cstdio>
#include <optional>
#include <sstream>

#include "common/comm/diagnosis/describe.h"
#include "common/error.h"
#include "common/io/terminal.h"
#include "common/parse_number.h"
#include "common/run/rendezvous/job_keys.h"
#include "common/run/rendezvous/process_state.h"

namespace lab {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kLook{50};  // then other keys are read
constexpr milliseconds kSilentWait{2000};
constexpr milliseconds kLinger{1000};

std::string encode(const RankIdentity& identity) {
  return fmt::format("{} {} {}", identity.pid, identity.host, identity.space);
}

RankIdentity decode(const std::string& text) {
  RankIdentity identity;
  std::istringstream stream(text);
  stream >> identity.pid >> identity.host >> std::ws;
  std::getline(stream, identity.space);
  return identity;
}

std::string in_words(const RankIdentity& identity) {
  return fmt::format("process {} on {}", identity.pid, identity.host);
}

/// Ends the rendezvous for all ranks that have arrived.
[[noreturn]] void refuse(Store& store, const std::string& reason) {
  if (store.add(job_keys::kRefusals, 1) == 1) store.set(job_keys::kRefusal, reason);
  store.add(job_keys::kRefusalSeen, 1);
  throw Error(store.get(job_keys::kRefusal, kLinger));
}

void throw_if_refused(Store& store) {
  const auto reason = store.try_get(job_keys::kRefusal);
  if (!reason) return;
  store.add(job_keys::kRefusalSeen, 1);
  throw Error(*reason);
}

class Arrival {
 public:
  Arrival(Store& store, const RankEnvironment& environment, Clock::time_point deadline)
      : store_(store),
        environment_(environment),
        deadline_(deadline),
        ranks_(static_cast<size_t>(environment.world_size)) {}

  std::vector<RankIdentity> run() {
    say_self();
    check_rank_zero();
    for (int rank = 0; rank < environment_.world_size; ++rank) wait_for(rank);
    if (environment_.rank == 0) store_.set(job_keys::kComplete, "1");
    std::vector<RankIdentity> result;
    for (const auto& rank : ranks_) result.push_back(*rank);
    return result;
  }

 private:
  std::optional<RankIdentity>& identity(int rank) { return ranks_[static_cast<size_t>(rank)]; }

  void say_self() {
    const int rank = environment_.rank;
    if (store_.add(job_keys::joined(rank), 1) == 1) {
      store_.set(job_keys::identity(rank), encode(self_));
      return;
    }
    const auto other = store_.get_within(job_keys::identity(rank), kSilentWait);
    const std::string reason =
        fmt::format("two processes say that they are rank {}: {} and {}{}", rank,
                    other ? in_words(decode(*other)) : "an unknown one", in_words(self_),
                    environment_.store_folder.empty() ? "" : " (or was the folder used before?)");
    if (store_.try_get(job_keys::kComplete)) throw Error(reason);
    refuse(store_, reason);
  }

  /// Checks that this rank matches rank 0.
  void check_rank_zero() {
    const std::string version = std::to_string(kJobVersion);
    const std::string size = std::to_string(environment_.world_size);
    if (environment_.rank == 0) {
      store_.set(job_keys::kVersion, version);
      store_.set(job_keys::kWorldSize, size);
      return;
    }
    std::optional<std::string> size_of_first;
    while (!(size_of_first = store_.get_within(job_keys::kWorldSize, kLook))) look_around(0);
    const std::string version_of_first = store_.try_get(job_keys::kVersion).value_or("0");
    if (version_of_first != version)
      refuse(store_,
             fmt::format("rank {} on {} runs version {} of this program, but rank 0 version "
                         "{}: build both from the same sources",
                         environment_.rank, self_.host, version, version_of_first));
    if (*size_of_first != size)
      refuse(store_, fmt::format("rank {} was started with world size {}, but rank 0 with {}",
                                 environment_.rank, size, *size_of_first));
  }

  void wait_for(int rank) {
    while (!identity(rank)) {
      if (const auto text = store_.get_within(job_keys::identity(rank), kLook))
        identity(rank) = decode(*text);
      else
        look_around(rank);
    }
    throw_if_refused(store_);
  }

  /// Handles what may have happened while this rank waited for rank `awaited`.
  void look_around(int awaited) {
    throw_if_refused(store_);
    for (int rank = 0; rank < environment_.world_size; ++rank) refuse_if_dead(rank);
    const auto now = Clock::now();
    if (now > deadline_) {
      const std::vector<int> ranks = missing(awaited);
      refuse(store_, fmt::format("{} never arrived at {} (waited {:g} s): {}", list_ranks(ranks),
                                 meeting_place(environment_), seconds(environment_.timeout),
                                 ranks.size() == 1 ? "was it started?" : "were they started?"));
    }
    if (told_ || now < begin_ + kSilentWait) return;
    told_ = true;
    print_if_possible(stderr, "rank {} waits for {} at {} ({:g} s at most)\n", environment_.rank,
                      list_ranks(missing(awaited)), meeting_place(environment_),
                      seconds(environment_.timeout));
  }

  void refuse_if_dead(int rank) {
    // For a rank on another host, its launcher reports it; rank 0 has the store at hand.
    if (environment_.rank == 0 && store_.try_get(job_keys::ended(rank)))
      refuse(store_, fmt::format("rank {} has ended before all ranks had arrived", rank));
    if (!identity(rank) || identity(rank)->space != self_.space) return;
    if (process_state(identity(rank)->pid) != ProcessState::kGone) return;
    refuse(store_, fmt::format("rank {} ({}) has ended before all ranks had arrived", rank,
                               in_words(*identity(rank))));
  }

  std::vector<int> missing(int first) {
    std::vector<int> ranks;
    for (int rank = first; rank < environment_.world_size; ++rank)
      if (!store_.try_get(job_keys::identity(rank))) ranks.push_back(rank);
    if (ranks.empty()) ranks.push_back(first);  // it has arrived just now
    return ranks;
  }

  static double seconds(milliseconds time) { return static_cast<double>(time.count()) * 1e-3; }

  Store& store_;
  const RankEnvironment& environment_;
  const RankIdentity self_{getpid(), host_name(), process_space()};
  Clock::time_point begin_ = Clock::now();
  Clock::time_point deadline_;
  std::vector<std::optional<RankIdentity>> ranks_;
  bool told_ = false;
};

}  // namespace

std::vector<RankIdentity> meet(Store& store, const RankEnvironment& environment,
                               Clock::time_point deadline) {
  const MeetingScope scope(store, environment.rank, "the rendezvous");
  return Arrival(store, environment, deadline).run();
}

void wait_until_refusal_is_known(Store& store, const RankEnvironment& environment) {
  const auto deadline = Clock::now() + kLinger;
  int64_t present = 0;
  for (int rank = 0; rank < environment.world_size; ++rank)
    if (const auto count = store.try_get(job_keys::joined(rank)))
      present += parse_number<int64_t>(*count).value_or(0);
  // Asks for a key that is never set: a wait that does not disturb other threads of the server.
  while (Clock::now() < deadline && store.add(job_keys::kRefusalSeen, 0) < present)
    store.get_within("job/never", milliseconds(10));
}

std::string meeting_place(const RankEnvironment& environment) {
  if (!environment.store_folder.empty()) return "the folder " + environment.store_folder;
  return fmt::format("{}:{}", environment.master_addr, environment.master_port);
}

MeetingScope::MeetingScope(Store& store, int rank, const std::string& what)
    : store_(store), rank_(rank) {
  store_.set(job_keys::meeting(rank_), what);
}

MeetingScope::~MeetingScope() {
  try {
    store_.set(job_keys::meeting(rank_), "");
  } catch (const Error&) {  // those who would read it are gone
  }
}

}  // namespace lab
