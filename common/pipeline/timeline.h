// Timeline: what the ranks of a pipeline did when, simulated or measured.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/comm/diagnosis/operation.h"

namespace lab {

enum class SpanKind : uint8_t {
  kForward,
  kBackward,
  kLoss,
  kOptimizer,
  kAdd,  // of what was received, in an all-reduce
  // Waiting for:
  kSend,
  kRecv,
  kCollective,  // an all-reduce, or an all-gather as in clipping
};

inline constexpr size_t kSpanKinds = 8;

/// "forward", "send", ...
std::string_view span_name(SpanKind kind);
inline bool is_compute(SpanKind kind) { return kind <= SpanKind::kAdd; }

struct Span {
  SpanKind kind = SpanKind::kForward;
  int microbatch = -1;  // -1: none
  double start = 0;
  double end = 0;
  int peer = -1;                          // of a message; root of a broadcast or reduce; -1: none
  uint64_t bytes = 0;                     // of a message or collective
  std::optional<OpKind> collective = {};  // which, if it is one, and known
  uint64_t members = 0;                   // of a collective: bit r is rank r; 0: not known

  double length() const { return end - start; }
  bool operator==(const Span&) const = default;
};

/// One rank. `spans`: what it did, one thing after the other, in the order of time; between them
/// nothing was recorded. `messages`: its messages, each from posted to done, and the collectives
/// that it posted, each while it travels; they may overlap with anything.
struct RankTimeline {
  std::string name;  // "stage 1"; empty: "rank 1"
  std::vector<Span> spans;
  std::vector<Span> messages;
  bool is_network = false;  // what travels for a rank, not what the rank does
};

/// Times begin at 0.
struct Timeline {
  std::string unit;  // "s", or "" for units of simulated time
  std::vector<RankTimeline> ranks;

  int rank_count() const { return static_cast<int>(ranks.size()); }
  const RankTimeline& of(int rank) const { return ranks.at(static_cast<size_t>(rank)); }
};

/// The end of the last span; 0 if there is none.
double makespan(const Timeline& timeline);

/// How long a rank computes. Collectives within a pass, for which it waits, do not count.
double compute_time(const Timeline& timeline, int rank);

/// The fraction of the makespan in which a rank does not compute. 0 if nothing happened.
double idle_share(const Timeline& timeline, int rank);
/// The same over all ranks: the bubble, and whatever else keeps them from computing.
double idle_share(const Timeline& timeline);

/// The most microbatches in flight at once: begun by a forward, not yet ended by a backward.
int peak_in_flight(const Timeline& timeline, int rank);

}  // namespace lab
