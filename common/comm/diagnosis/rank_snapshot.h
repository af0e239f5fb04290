// RankSnapshot: what one rank was doing at one moment, according to its flight record.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "common/comm/diagnosis/operation.h"

namespace lab {

/// Limits of a snapshot.
inline constexpr size_t kMaxPending = 1024;
inline constexpr size_t kMaxRecent = 256;
inline constexpr size_t kMaxGroups = 64;
inline constexpr size_t kMaxGroupName = 31;  // bytes

enum class OpState : uint8_t {
  kPosted,   // not waited for (yet); also a computation that is running
  kWaiting,  // the rank waits until it is done
  kDone,
};

/// One operation of one rank, from posting until it is done.
struct OpRecord {
  uint64_t id = 0;  // 1, 2, 3 ... in the order of posting on this rank
  OpKind kind = OpKind::kSend;
  OpState state = OpState::kPosted;
  uint32_t group = 0;       // 0: the world; else as in GroupRecord
  int32_t peer = -1;        // world rank of the other side; root of a broadcast or reduce; -1: none
  int32_t tag = 0;          // of a message; of a reduction: its ReduceOp, as a number
  int32_t microbatch = -1;  // -1: unknown
  uint64_t bytes = 0;       // of the tensor (all_gather: of the input; reduce_scatter: the output)
  /// For a message, its number among those between the same ranks, in the same direction, with the
  /// same group and tag, from 0; a send meets the recv of the same number. For a collective, its
  /// number in the group, from 1.
  uint64_t sequence = 0;
  int64_t posted_ns = 0;  // CLOCK_MONOTONIC
  /// For a posted collective: when its turn came, and when the network was done with it; 0: not
  /// yet. Even then, the rank may not have waited for it.
  int64_t started_ns = 0;
  int64_t finished_ns = 0;
  int64_t waiting_ns = 0;  // when the rank began to wait; 0: it has not
  int64_t done_ns = 0;
};

/// A group that this rank belongs to.
struct GroupRecord {
  uint32_t id = 0;           // the same on all members
  uint64_t members = 0;      // bit r: world rank r
  uint64_t collectives = 0;  // how many of its collectives this rank has entered
  std::string name;          // "world", "pipeline 1"
};

/// How many operations of a kind were posted, and the sum of their bytes.
struct Traffic {
  uint64_t operations = 0;
  uint64_t bytes = 0;
};

/// What is known about the process, from whoever started it or receives its heartbeat.
enum class RankFate : uint8_t {
  kUnknown,  // it has not arrived
  kRunning,
  kStopped,  // SIGSTOP or Ctrl-Z
  kExited,   // `status`: exit code; -1: not known
  kKilled,   // `status`: signal
  kSilent,   // no heartbeat for `status` seconds
};

/// What became of a rank's process; `status` as above.
struct Fate {
  RankFate fate = RankFate::kRunning;
  int status = 0;
};

struct RankSnapshot {
  int rank = 0;
  int64_t pid = 0;
  RankFate fate = RankFate::kUnknown;
  int status = 0;
  bool left = false;   // it has closed its world group in good order
  uint64_t epoch = 0;  // grows with every entry of the record
  int64_t taken_ns = 0;
  std::vector<OpRecord> pending;  // posted and not done, in the order of posting
  /// The newest finished message of each of the 256 most recently used streams (a stream: messages
  /// between the same ranks, in one direction, with one group and tag), the newest first. A message
  /// with a lower number in its stream that is not pending is finished, too.
  std::vector<OpRecord> recent;
  std::vector<GroupRecord> groups;
  std::array<Traffic, kOpKinds> traffic{};

  /// The operation that this rank is waiting for, or null.
  const OpRecord* waiting() const;
};

/// The process is there, but does nothing.
inline bool is_held(const RankSnapshot& rank) {
  return rank.fate == RankFate::kStopped || rank.fate == RankFate::kSilent;
}

/// The one of these GroupRecords that has this id, or null.
template <typename Groups>
auto* find_group(Groups& groups, uint32_t id) {
  const auto found = std::ranges::find(groups, id, &GroupRecord::id);
  return found == groups.end() ? nullptr : &*found;
}

/// For the store: at most kMaxSnapshotBytes. `encode_snapshot` throws Error for more than a
/// FlightRecorder's snapshot can hold, `decode_snapshot` for bytes that do not come from it.
inline constexpr size_t kMaxSnapshotBytes = 256 << 10;
std::string encode_snapshot(const RankSnapshot& snapshot);
RankSnapshot decode_snapshot(const std::string& bytes);

}  // namespace lab
