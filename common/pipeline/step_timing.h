// Where the time and the bytes of a measured step went.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/pipeline/schedule.h"
#include "common/pipeline/timeline.h"

namespace lab {

/// What a rank spent its time on, as fractions of the step's makespan; they add up to 1.
///
/// While a rank is held up by a message, it counts as waiting until the other side has posted its
/// part, and as communicating from then on; for a collective, until the last member has entered it.
/// (If the other side is not in the timeline, all of it counts as waiting.)
struct RankShare {
  std::string name;          // as in the drawings: "rank 1" if it has none
  double compute = 0;        // forwards, backwards, losses, updates
  double communication = 0;  // held up while data is on its way
  double waiting = 0;        // held up because another rank is not there yet
  double other = 0;          // nothing recorded: before, between and after
};

/// One per rank. An empty timeline: everything is `other`.
std::vector<RankShare> rank_shares(const Timeline& timeline);

/// What one rank sent to another in a step. Messages are counted where they are sent, with the
/// bytes of their tensors. For a collective of n ranks with a tensor of B bytes, each member counts
/// what the classic algorithm sends, whatever the transport did:
///   all_reduce      2 (n-1)/n B  to the next member, in the order of ranks (a ring)
///   all_gather      (n-1) B      to the next member (B: the input)
///   reduce_scatter  (n-1) B      to the next member (B: the output)
///   broadcast       B            from the root to every other member
///   reduce          B            from every other member to the root
/// barrier and split count as operations of no bytes.
struct LinkTraffic {
  int from = 0;
  int to = 0;
  uint64_t messages = 0;
  uint64_t message_bytes = 0;
  uint64_t collectives = 0;
  double collective_bytes = 0;  // n need not divide B

  double bytes() const { return static_cast<double>(message_bytes) + collective_bytes; }
  bool operator==(const LinkTraffic&) const = default;
};

/// Ordered by `from` and `to`; links that carried nothing are left out. Collectives whose members
/// are not known are not counted.
std::vector<LinkTraffic> link_traffic(const Timeline& timeline);

/// What theory predicts for a measured step: every rank as a stage of `schedule` in simulated time,
/// with passes (the loss is part of the forward) as long as they were on average on that rank, and
/// messages that take no time; no updates, no collectives. The ranks of `measured` are pipelines in
/// turn: rank r is stage r % p. A step of several waves (w times the schedule's microbatches) runs
/// the schedule w times in a row.
/// Throws Error unless the number of ranks is a multiple of the stages, and for a faulty schedule.
Timeline theory_of(const Timeline& measured, const Schedule& schedule);

/// One step of all ranks: pipeline by pipeline, stage by stage.
struct StepTimeline {
  Timeline measured = {};
  Timeline theory = {};                       // theory_of(measured, ...)
  double ideal_idle_share = 0.0;              // ideal_bubble(stages, microbatches): 0 to 1
  std::vector<double> activation_bytes = {};  // the most on each rank
  bool short_of_cores = false;                // all ranks share one machine, which has fewer cores
};

}  // namespace lab
