// Schedule: what every stage of a pipeline does, and in which order.
#include "common/pipeline/schedule.h"

#include <algorithm>

#include "common/error.h"

namespace lab {
namespace {

const char* prefix(ActionKind kind) {
  switch (kind) {
    case ActionKind::kForward:
      return "F";
    case ActionKind::kBackward:
      return "B";
    case ActionKind::kRecvActivation:
      return "<F";
    case ActionKind::kSendActivation:
      return ">F";
    case ActionKind::kRecvGradient:
      return "<B";
    case ActionKind::kSendGradient:
      return ">B";
  }
  return "?";
}

}  // namespace

bool Schedule::has_messages() const {
  return std::ranges::any_of(stages, [](const ActionList& actions) {
    return std::ranges::any_of(actions, is_message, &Action::kind);
  });
}

std::string to_string(const Action& action) {
  const bool posted = action.posted && is_message(action.kind);
  return fmt::format("{}{}{}", prefix(action.kind), action.microbatch, posted ? "*" : "");
}

std::string to_text(const Schedule& schedule) {
  std::string text =
      fmt::format("stages {} microbatches {}\n", schedule.stage_count(), schedule.microbatches);
  for (int stage = 0; stage < schedule.stage_count(); ++stage) {
    text += fmt::format("{}:", stage);
    for (const Action& action : schedule.stages[static_cast<size_t>(stage)])
      text += fmt::format(" {}", to_string(action));
    text += '\n';
  }
  return text;
}

}  // namespace lab
