// FlightRecorder: records every operation of a rank.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/comm/diagnosis/rank_snapshot.h"

namespace lab {

/// Nanoseconds by this machine's CLOCK_MONOTONIC.
int64_t monotonic_now_ns();

/// Several threads may write and read. Other processes see only the snapshots that the rank's
/// Watchdog publishes.
class FlightRecorder {
 public:
  static constexpr size_t kHistory = 16384;  // finished operations that are kept

  /// Nanoseconds; never goes back.
  using Clock = std::function<int64_t()>;

  /// `clock` empty: CLOCK_MONOTONIC.
  explicit FlightRecorder(int rank, Clock clock = {});
  ~FlightRecorder();
  FlightRecorder(const FlightRecorder&) = delete;
  FlightRecorder& operator=(const FlightRecorder&) = delete;

  /// Registers a group and its members. Group 0, "world", comes first. Names are cut to 31 bytes.
  /// Throws Error for the 65th group.
  void add_group(uint32_t id, uint64_t members, const std::string& name);

  /// Records an operation that has been posted; fills in its `id`, `state` and times. A collective
  /// counts as entered; its group must have been added. Returns the id. The operation is pending
  /// until `done`, even if its data has arrived. Throws Error if 1,024 operations are pending
  /// already.
  uint64_t posted(OpRecord record);
  /// All of these ignore an id that is not pending. `started`: a posted collective has reached the
  /// head of its group's queue. `finished`: the network is done with it. `at_ns`: when, by this
  /// record's clock; 0: now.
  void started(uint64_t id, int64_t at_ns = 0);
  void finished(uint64_t id, int64_t at_ns = 0);
  void waiting(uint64_t id);
  void done(uint64_t id);

  /// The rank has closed its world group in good order: anyone still waiting for it would wait
  /// forever.
  void leave();

  RankSnapshot snapshot() const;
  /// The last kHistory operations that have finished, the oldest first: for timelines.
  std::vector<OpRecord> history() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// A computation in the timeline, from construction to destruction.
class ComputeScope {
 public:
  ComputeScope(FlightRecorder& recorder, OpKind kind, int microbatch)
      : recorder_(recorder), id_(recorder.posted({.kind = kind, .microbatch = microbatch})) {}
  ~ComputeScope() { recorder_.done(id_); }
  ComputeScope(const ComputeScope&) = delete;
  ComputeScope& operator=(const ComputeScope&) = delete;

 private:
  FlightRecorder& recorder_;
  uint64_t id_;
};

}  // namespace lab
