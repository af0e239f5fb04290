// The keys that the ranks of a job write in its store, and who writes them.
#pragma once

#include <fmt/format.h>

#include <string>

namespace lab {

/// Exit code of a rank that a diagnosis ended.
inline constexpr int kDiagnosedExit = 71;

namespace job_keys {

// Rendezvous.
inline constexpr const char* kVersion = "job/version";           // rank 0, before the world size
inline constexpr const char* kWorldSize = "job/world_size";      // rank 0
inline constexpr const char* kComplete = "job/complete";         // rank 0: all ranks have arrived
inline constexpr const char* kRefusals = "job/refusals";         // counter
inline constexpr const char* kRefusal = "job/refusal";           // why there can be no job
inline constexpr const char* kRefusalSeen = "job/refusal/seen";  // counter
inline std::string joined(int rank) { return fmt::format("job/joined/{}", rank); }  // counter
inline std::string identity(int rank) { return fmt::format("job/identity/{}", rank); }

// While the job runs.
/// What a rank waits for outside its process groups: "rendezvous", "" while it does not.
inline std::string meeting(int rank) { return fmt::format("job/meeting/{}", rank); }
inline std::string agreement(uint64_t number, int rank) {
  return fmt::format("job/agree/{}/{}", number, rank);
}

// The end.
/// This rank no longer needs the store.
inline std::string left(int rank) { return fmt::format("job/left/{}", rank); }
inline constexpr const char* kFailures = "job/failures";  // counter
/// Set when an exception ends this rank: its place in the order of failures.
inline std::string failed(int rank) { return fmt::format("job/failed/{}", rank); }

/// Set by the launcher of this rank's host when the rank has failed: its status as from waitpid.
inline std::string ended(int rank) { return fmt::format("job/ended/{}", rank); }

// Watchdogs.
/// What the rank was doing a moment ago: a RankSnapshot.
inline std::string snapshot(int rank) { return fmt::format("job/snapshot/{}", rank); }
inline constexpr const char* kVerdict =
    "job/verdict";  // rank 0: whose own error it is, or -1; a headline
inline constexpr const char* kVerdictSeen = "job/verdict/seen";  // counter

}  // namespace job_keys
}  // namespace lab
