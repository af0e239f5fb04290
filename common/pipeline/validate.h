// Whether a schedule can be run: complete, in a possible order, and free of deadlocks.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "common/pipeline/schedule.h"

namespace lab {

/// A stage that can never do its next action, and the one that it waits for.
struct BlockedStage {
  int stage = 0;
  Action action;
  int waits_for = 0;  // a stage; without messages, the one whose pass must come first

  bool operator==(const BlockedStage&) const = default;
};

struct ScheduleFault {
  /// First line: what is wrong, and where ("stage 1: B2 comes before F2"). For a deadlock, the
  /// following lines are the circle of waits, one stage per line.
  std::string message;
  /// The circle, beginning with the lowest stage; empty for any other fault.
  std::vector<BlockedStage> cycle;
};

/// Nothing if every stage can finish its list; otherwise the first fault:
///   - a microbatch out of range; a forward or backward that is missing, doubled or posted; a
///     backward before its own forward; no stages, no microbatches;
///   - in a program, a message that is missing or doubled, or that a stage does not have (the first
///     stage receives no activation and sends no gradient, the last one sends no activation and
///     receives no gradient); a recv after the pass that reads its data, a send before the pass
///     that makes it;
///   - a deadlock under *rendezvous*: a send that is not posted is done only when the other side
///     has reached the recv, as with Gloo and with large messages of NCCL or MPI. In a schedule
///     without messages: passes that wait for each other in a circle, however messages are sent.
/// Messages between two stages match by kind and microbatch (their tag), not by order.
std::optional<ScheduleFault> validate(const Schedule& schedule);

/// Throws Error, `origin` and the fault's message, if there is a fault.
void require_valid(const Schedule& schedule, const std::string& origin);

}  // namespace lab
