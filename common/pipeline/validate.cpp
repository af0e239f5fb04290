#include "common/pipeline/validate.h"

#include <algorithm>

#include "common/error.h"
#include "common/pipeline/execution.h"

namespace lab {
namespace {

// What has to happen on the other stage before `action` can be done.
ActionKind counterpart(ActionKind kind, bool plan) {
  switch (kind) {
    case ActionKind::kForward:
      return plan ? ActionKind::kForward : ActionKind::kSendActivation;
    case ActionKind::kBackward:
      return plan ? ActionKind::kBackward : ActionKind::kSendGradient;
    case ActionKind::kRecvActivation:
      return ActionKind::kSendActivation;
    case ActionKind::kSendActivation:
      return ActionKind::kRecvActivation;
    case ActionKind::kRecvGradient:
      return ActionKind::kSendGradient;
    case ActionKind::kSendGradient:
      return ActionKind::kRecvGradient;
  }
  return kind;
}

// "the send >F1"
std::string with_verb(const Action& action) {
  if (!is_message(action.kind)) return to_string(action);
  return fmt::format("the {} {}", is_send(action.kind) ? "send" : "recv", to_string(action));
}

// ", its action 7 of 24"
std::string place(const ActionList& actions, const Action& action) {
  const auto found = std::ranges::find(actions, action);
  return fmt::format(", its action {} of {}", found - actions.begin() + 1, actions.size());
}

// "in the send >F1, its action 7 of 24,". A pass in a program waits for a recv that was posted. (At
// the end of its list no stage is part of a circle: nobody waits for it any more.)
std::string where(const ActionList& actions, const Action& action, bool plan) {
  const bool reads = !is_message(action.kind) && !plan;
  return fmt::format("{} {}{},{}", reads ? "before" : "in", with_verb(action),
                     place(actions, action), reads ? " for its data" : "");
}

std::string describe_wait(const Schedule& schedule, const BlockedStage& blocked, bool plan) {
  const auto list = [&](int stage) -> const ActionList& {
    return schedule.stages[static_cast<size_t>(stage)];
  };
  Action other = {counterpart(blocked.action.kind, plan), blocked.action.microbatch};
  const ActionList& others = list(blocked.waits_for);
  other.posted = std::ranges::find(others, other) == others.end();
  return fmt::format("stage {} waits {} until stage {} {} {}{}", blocked.stage,
                     where(list(blocked.stage), blocked.action, plan), blocked.waits_for,
                     plan ? "has done" : "reaches", with_verb(other), place(others, other));
}

ScheduleFault deadlock(const Schedule& schedule, std::vector<BlockedStage> cycle) {
  const bool plan = !schedule.has_messages();
  std::string text =
      fmt::format("{}: {} of {} stages wait for each other in a circle",
                  plan ? "impossible order" : "deadlock", cycle.size(), schedule.stage_count());
  for (const BlockedStage& blocked : cycle)
    text += fmt::format("\n{}", describe_wait(schedule, blocked, plan));
  return {std::move(text), std::move(cycle)};
}

}  // namespace

std::optional<ScheduleFault> validate(const Schedule& schedule) {
  if (schedule.stages.empty()) return ScheduleFault{"the schedule has no stages", {}};
  if (schedule.microbatches < 1) return ScheduleFault{"the schedule has no microbatches", {}};
  const bool program = schedule.has_messages();
  for (int stage = 0; stage < schedule.stage_count(); ++stage)
    if (std::string fault = check_stage(schedule, stage, program); !fault.empty())
      return ScheduleFault{std::move(fault), {}};
  const std::vector<StageCosts> costs(schedule.stages.size());
  Execution execution(schedule, costs);
  if (execution.run()) return std::nullopt;
  return deadlock(schedule, execution.circle());
}

void require_valid(const Schedule& schedule, const std::string& origin) {
  if (const std::optional<ScheduleFault> fault = validate(schedule))
    fail("{}: {}", origin, fault->message);
}

}  // namespace lab
