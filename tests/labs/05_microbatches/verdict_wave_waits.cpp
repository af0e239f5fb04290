// Whether an executor waits where its actions say so, by the flight record of its rank.
#include <fmt/format.h>

#include <algorithm>

#include "tests/labs/05_microbatches/operation.h"
#include "tests/labs/05_microbatches/verdict_wave.h"

namespace lab05 {

using lab::Action;
using lab::ActionKind;
using lab::ActionList;
using lab::grading::Parcel;

namespace {

/// The action that an operation of this rank belongs to: each stage has it once.
ActionKind kind_of(const Operation& operation, int rank) {
  const bool forwards = operation.peer > rank;
  switch (operation.kind) {
    case Operation::kForward:
      return ActionKind::kForward;
    case Operation::kBackward:
      return ActionKind::kBackward;
    case Operation::kSend:
      return forwards ? ActionKind::kSendActivation : ActionKind::kSendGradient;
    case Operation::kRecv:
      break;
  }
  return forwards ? ActionKind::kRecvGradient : ActionKind::kRecvActivation;
}

/// As the list has it, posted or not.
Action action_of(const ActionList& actions, const Operation& operation, int rank) {
  const Action wanted{kind_of(operation, rank), operation.microbatch};
  const auto found = std::ranges::find_if(actions, [&](const Action& action) {
    return action.kind == wanted.kind && action.microbatch == wanted.microbatch;
  });
  return found == actions.end() ? wanted : *found;
}

/// The first pass or send that begins while `send` is under way; null if there is none.
const Operation* begun_during(const Operation& send, const std::vector<Operation>& all) {
  const Operation* first = nullptr;
  for (const Operation& other : all)
    if (other.kind != Operation::kRecv && other.id > send.id && other.begin_ns < send.end_ns &&
        (first == nullptr || other.id < first->id))
      first = &other;
  return first;
}

}  // namespace

std::string wrong_waits(const std::vector<Parcel>& results, const WaveCase& c) {
  for (size_t r = 0; r < results.size(); ++r) {
    const int rank = static_cast<int>(r);
    const ActionList& actions = c.schedule.stages[r];
    const std::vector<Operation> all = operations_from(results[r].numbers("operations"));
    for (const Operation& send : all) {
      if (send.kind != Operation::kSend) continue;
      const Action action = action_of(actions, send, rank);
      const Operation* next = action.posted ? nullptr : begun_during(send, all);
      if (next == nullptr) continue;
      return fmt::format(
          "rank {}: {} is not posted, but {} begins before it is done. Only a posted send, {}*, "
          "may still be under way when the next action begins; as it is, a program that must "
          "deadlock would come to its end here",
          rank, to_string(action), to_string(Action{kind_of(*next, rank), next->microbatch}),
          to_string(action));
    }
  }
  return "";
}

}  // namespace lab05
