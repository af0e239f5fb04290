// Rendezvous: the ranks of a job find each other in its store.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "common/comm/store/store.h"
#include "common/run/rendezvous/rank_environment.h"

namespace lab {

/// The version of everything that ranks of a job must have in common: the keys of their store,
/// their messages, how they compute. Increase it with every change that makes ranks of old and new
/// builds incompatible.
inline constexpr int kJobVersion = 5;

/// The identity of a rank.
struct RankIdentity {
  int64_t pid = 0;
  std::string host;
  std::string space;  // as from process_space()
};

/// Registers this rank in the store and waits for all others. Returns their identities, by rank.
///
/// Throws Error, with the same message on every rank that has arrived so far: two processes with
/// one rank, another version of the program or another world size than rank 0's, a rank that does
/// not arrive before the deadline or dies meanwhile. A process that arrives after all ranks are
/// there is the only one to get an Error.
std::vector<RankIdentity> meet(Store& store, const RankEnvironment& environment,
                               std::chrono::steady_clock::time_point deadline);

/// For rank 0 after `meet` has thrown: returns when the others have read the reason, or after a
/// second.
void wait_until_refusal_is_known(Store& store, const RankEnvironment& environment);

/// Where the ranks meet: "127.0.0.1:29500" or "the folder ...".
std::string meeting_place(const RankEnvironment& environment);

/// During its lifetime, the store contains what this rank waits for outside its process groups, so
/// that a diagnosis can use it if another rank ends.
class MeetingScope {
 public:
  MeetingScope(Store& store, int rank, const std::string& what);
  ~MeetingScope();
  MeetingScope(const MeetingScope&) = delete;
  MeetingScope& operator=(const MeetingScope&) = delete;

 private:
  Store& store_;
  int rank_;
};

}  // namespace lab
