// Joining a job (store, rendezvous, flight record, world) and leaving it.
#include "common/run/launch/job.h"

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <exception>
#include <optional>
#include <thread>

#include "common/comm/diagnosis/describe.h"
#include "common/comm/gloo/gloo_transport.h"
#include "common/comm/store/file_store.h"
#include "common/comm/store/memory_store.h"
#include "common/comm/store/tcp_store.h"
#include "common/error.h"
#include "common/io/terminal.h"
#include "common/printable.h"
#include "common/run/rendezvous/job_keys.h"
#include "common/run/rendezvous/own_address.h"
#include "common/run/rendezvous/process_state.h"
#include "common/run/rendezvous/rendezvous.h"
#include "common/run/watch/watchdog.h"

namespace lab {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kSilentWait{2000};

/// A client of rank 0's store; prints a line on stderr if rank 0 keeps it waiting.
std::unique_ptr<Store> reach_store(const RankEnvironment& environment) {
  const auto begin = Clock::now();
  const auto connect = [&](milliseconds timeout) {
    return std::make_unique<TcpStore>(environment.master_addr, environment.master_port, timeout);
  };
  const milliseconds first = std::min(kSilentWait, environment.timeout);
  try {
    return connect(first);
  } catch (const Error&) {
    const bool for_good = Clock::now() < begin + first * 9 / 10;
    if (for_good || first == environment.timeout) throw;
  }
  print_if_possible(stderr, "rank {} waits for rank 0 at {} ({:g} s at most)\n", environment.rank,
                    meeting_place(environment),
                    std::chrono::duration<double>(environment.timeout).count());
  return connect(environment.timeout - first);
}

}  // namespace

struct Job::Impl {
  RankEnvironment environment;
  std::unique_ptr<TcpStoreServer> server;
  std::unique_ptr<Store> own_store;
  Store* store = nullptr;
  std::vector<RankIdentity> ranks;
  std::unique_ptr<FlightRecorder> recorder;
  std::unique_ptr<Watchdog> watchdog;
  std::shared_ptr<Transport> connections;
  std::optional<ProcessGroup> world;
  uint64_t agreements = 0;
  bool all_know = false;  // the error that ends this rank also ends the others
  int exceptions = std::uncaught_exceptions();

  explicit Impl(const RankEnvironment& of) : environment(of) {
    const auto deadline = Clock::now() + environment.timeout;
    // Others read what a rank prints: write it line by line, not when some buffer is full.
    if (environment.world_size > 1) std::setvbuf(stdout, nullptr, _IOLBF, 0);
    // If a peer is gone, this must be an error, not the silent end of this rank.
    if (environment.world_size > 1) std::signal(SIGPIPE, SIG_IGN);
    open_store();
    recorder = std::make_unique<FlightRecorder>(environment.rank);
    if (environment.world_size == 1) {
      world.emplace(nullptr, *recorder, 0, 1, environment.timeout);
      return;
    }
    if (environment.bind_addr.empty())
      environment.bind_addr = own_address_towards(environment.master_addr);
    try {
      ranks = meet(*store, environment, deadline);
    } catch (...) {
      if (environment.rank == 0) wait_until_refusal_is_known(*store, environment);
      throw;
    }
    watchdog = std::make_unique<Watchdog>(*store, *recorder, environment, ranks);
    try {
      connect(deadline);
    } catch (...) {
      leave_in_failure();
      throw;
    }
  }

  ~Impl() {
    if (environment.world_size == 1 || !world) return;
    if (std::uncaught_exceptions() > exceptions)
      leave_in_failure();
    else
      leave();
  }

  void open_store() {
    if (!environment.store_folder.empty()) {
      own_store = std::make_unique<FileStore>(environment.store_folder);
    } else if (environment.world_size == 1) {
      own_store = std::make_unique<MemoryStore>();
    } else if (environment.rank == 0 && !environment.store_is_served) {
      server = std::make_unique<TcpStoreServer>(environment.master_addr, environment.master_port);
    } else {
      own_store = reach_store(environment);
    }
    store = server ? &server->store() : own_store.get();
  }

  void connect(Clock::time_point deadline) {
    const MeetingScope scope(*store, environment.rank, "connecting to the other ranks");
    const auto rest = std::chrono::duration_cast<milliseconds>(deadline - Clock::now());
    const GlooOptions options{.rank = environment.rank,
                              .size = environment.world_size,
                              .address = environment.bind_addr,
                              .timeout = std::max(rest, milliseconds(1))};
    try {
      connections = connect_gloo(options, *store);
      world.emplace(connections, *recorder, environment.rank, environment.world_size,
                    environment.timeout);
    } catch (const Error& error) {
      fail("rank {} could not connect to the other ranks: {}", environment.rank, error.what());
    }
  }

  void leave() {
    world.reset();
    connections.reset();
    if (environment.rank != 0) watchdog.reset();
    try {
      store->set(job_keys::left(environment.rank), "1");
      wait_for_others(environment.timeout);
    } catch (const std::exception&) {  // rank 0 could not wait any longer
    }
  }

  void leave_in_failure() {
    // The error of this rank is printed later, by run_main. If its connections closed before, the
    // ranks that wait for it might print first that their operations broke off.
    static const std::shared_ptr<Transport> kept_until_exit = connections;
    bool judged = false;
    try {
      store->set(job_keys::failed(environment.rank),
                 std::to_string(store->add(job_keys::kFailures, 1)));
      if (!all_know) judged = watchdog->last_words();
      store->set(job_keys::left(environment.rank), "1");
      wait_for_others(kSilentWait);
    } catch (const std::exception& error) {  // the store is gone: no rank is left to tell
      if (!judged) print_if_possible(stderr, "rank {} ends: {}\n", environment.rank, error.what());
    }
  }

  /// Unless a launcher does, rank 0 serves the store and judges the job, so it leaves last.
  void wait_for_others(milliseconds patience) {
    if (environment.rank != 0 || environment.store_is_served) return;
    const auto begin = Clock::now();
    bool told = false;
    for (auto waited = remaining(); !waited.empty(); waited = remaining()) {
      const auto now = Clock::now();
      if (now > begin + patience) return;
      if (!told && patience > kSilentWait && now > begin + kSilentWait) {
        told = true;
        print_if_possible(stderr,
                          "rank 0 has finished and serves the others until they have, too: {}\n",
                          list_ranks(waited));
      }
      std::this_thread::sleep_for(milliseconds(5));
    }
  }

  /// The other ranks that have not ended, as far as is known.
  std::vector<int> remaining() {
    std::vector<int> result;
    for (int rank = 1; rank < environment.world_size; ++rank) {
      const RankIdentity& identity = ranks[static_cast<size_t>(rank)];
      const bool near = identity.space == ranks[0].space;
      if (store->try_get(job_keys::left(rank))) continue;
      if (near && process_state(identity.pid) == ProcessState::kGone) continue;
      result.push_back(rank);
    }
    return result;
  }

  void agree(const std::string& what, const std::string& value) {
    if (environment.world_size == 1) return;
    const MeetingScope scope(*store, environment.rank, "a comparison of the " + what);
    const uint64_t number = agreements++;
    const std::string own = what + '\n' + value;
    store->set(job_keys::agreement(number, environment.rank), own);
    std::string of_first;
    for (int rank = 0; rank < environment.world_size; ++rank) {
      const std::string text =
          rank == environment.rank
              ? own
              : store->get(job_keys::agreement(number, rank), environment.timeout);
      if (rank == 0) of_first = text;
      if (text == of_first) continue;
      const auto value_of = [](const std::string& entry) {
        return printable(entry.substr(entry.find('\n') + 1));
      };
      all_know = true;
      const auto what_of = [](const std::string& entry) {
        return printable(entry.substr(0, entry.find('\n')));
      };
      require(what_of(text) == what_of(of_first),
              "the ranks compare different things: rank 0 the {}, rank {} the {}",
              what_of(of_first), rank, what_of(text));
      fail("the ranks disagree about the {}: rank 0 has {}, rank {} has {}", what,
           value_of(of_first), rank, value_of(text));
    }
  }
};

Job::Job(const RankEnvironment& environment) : impl_(std::make_unique<Impl>(environment)) {}

Job::~Job() = default;

const RankEnvironment& Job::environment() const { return impl_->environment; }

std::vector<int> Job::ranks_here() const {
  const std::string space = process_space();
  std::vector<int> here;
  for (int rank = 0; rank < impl_->environment.world_size; ++rank)
    if (rank == impl_->environment.rank || impl_->ranks[static_cast<size_t>(rank)].space == space)
      here.push_back(rank);
  return here;
}

ProcessGroup& Job::world() { return *impl_->world; }

Store& Job::store() { return *impl_->store; }

void Job::agree(const std::string& what, const std::string& value) { impl_->agree(what, value); }

}  // namespace lab
