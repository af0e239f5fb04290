// Rendezvous: the ranks of a job find each other in its store.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "common/comm/store/store.h"
#include "common/run/rendezvous/rank_environment.h"

namespace lab {

/// The version of all that ranks of a job have in common: the keys of their store, their messages,
/// how they compute. Grows with every change after which ranks of both sides would not fit
/// together.
inline constexpr int kJobVersion = 2;

/// Who a rank is.
struct RankIdentity {
  int64_t pid = 0;
  std::string host;
  std::string space;  // as of process_space()
};

/// Says this rank in the store and waits for all others. Returns who they are, by rank.
///
/// Throws Error on every rank that has come so far, with the same words: two processes with one
/// rank, another version of the program or another world size than rank 0's, a rank that does not
/// come before the deadline or dies meanwhile. Who comes when all ranks are there is the only one
/// to hear of it.
std::vector<RankIdentity> meet(Store& store, const RankEnvironment& environment,
                               std::chrono::steady_clock::time_point deadline);

/// For rank 0 after `meet` has thrown: returns when the others have heard of it, or after a second.
void wait_until_refusal_is_known(Store& store, const RankEnvironment& environment);

/// Where the ranks meet: "127.0.0.1:29500" or "the folder ...".
std::string meeting_place(const RankEnvironment& environment);

/// While it lives, the store tells what this rank waits for outside its process groups, so that the
/// end of another rank can be explained.
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
