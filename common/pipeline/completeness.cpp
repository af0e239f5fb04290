// Whether each stage's list, taken alone, is complete and in order.
#include <algorithm>
#include <array>

#include "common/error.h"
#include "common/pipeline/execution.h"

namespace lab {
namespace {

constexpr int kKinds = 6;
constexpr int kAbsent = -1;

class StageCheck {
 public:
  StageCheck(const Schedule& schedule, int stage)
      : actions_(schedule.stages[static_cast<size_t>(stage)]),
        microbatches_(schedule.microbatches),
        first_(stage == 0),
        last_(stage == schedule.stage_count() - 1) {}

  std::string fault(bool program) {
    std::string text = take_positions();
    for (size_t k = 0; text.empty() && k < places_.size(); ++k) {
      text = check_passes(static_cast<int>(k));
      if (text.empty() && program) text = check_messages(static_cast<int>(k));
    }
    return text;
  }

 private:
  // Records where everything is.
  std::string take_positions() {
    // A list of n actions lacks at least one of the forwards 0 to n, if there are that many.
    // Looking no further keeps the work proportional to the list, however many microbatches are
    // announced.
    const auto count = std::min(static_cast<size_t>(microbatches_), actions_.size() + 1);
    places_.resize(count);
    for (auto& place : places_) place.fill(kAbsent);
    for (size_t i = 0; i < actions_.size(); ++i) {
      const Action& action = actions_[i];
      if (action.microbatch < 0 || action.microbatch >= microbatches_)
        return fmt::format("{}, but the microbatches are 0 to {}", to_string(action),
                           microbatches_ - 1);
      if (action.posted && !is_message(action.kind))
        return fmt::format("{} is posted, but only messages can be", name(action));
      if (std::string text = check_side(action); !text.empty()) return text;
      if (static_cast<size_t>(action.microbatch) >= count) continue;
      int& place = at(action.kind, action.microbatch);
      if (place != kAbsent)
        return fmt::format("{} comes twice, as action {} and as action {}", name(action), place + 1,
                           i + 1);
      place = static_cast<int>(i);
    }
    return "";
  }

  // A message across an end of the pipeline.
  std::string check_side(const Action& action) const {
    const char* reason = nullptr;
    if (first_ && action.kind == ActionKind::kRecvActivation)
      reason = "the first stage receives no activation: it reads the tokens";
    if (first_ && action.kind == ActionKind::kSendGradient)
      reason = "the first stage sends no gradient: there is no stage before it";
    if (last_ && action.kind == ActionKind::kSendActivation)
      reason = "the last stage sends no activation: it computes the loss";
    if (last_ && action.kind == ActionKind::kRecvGradient)
      reason = "the last stage receives no gradient: it computes the loss itself";
    return reason == nullptr ? "" : fmt::format("{}, but {}", to_string(action), reason);
  }

  std::string check_passes(int k) {
    for (const ActionKind kind : {ActionKind::kForward, ActionKind::kBackward})
      if (at(kind, k) == kAbsent) return missing(kind, k);
    if (at(ActionKind::kBackward, k) < at(ActionKind::kForward, k))
      return fmt::format("B{0} comes before F{0}", k);
    return "";
  }

  std::string check_messages(int k) {
    for (const ActionKind pass : {ActionKind::kForward, ActionKind::kBackward}) {
      const bool forward = pass == ActionKind::kForward;
      const ActionKind recv = forward ? ActionKind::kRecvActivation : ActionKind::kRecvGradient;
      const ActionKind send = forward ? ActionKind::kSendActivation : ActionKind::kSendGradient;
      if (forward ? !first_ : !last_) {
        if (at(recv, k) == kAbsent) return missing(recv, k);
        if (at(recv, k) > at(pass, k))
          return fmt::format("{} comes after {}, which reads it", name({recv, k}), name({pass, k}));
      }
      if (forward ? !last_ : !first_) {
        if (at(send, k) == kAbsent) return missing(send, k);
        if (at(send, k) < at(pass, k))
          return fmt::format("{} comes before {}, which makes it", name({send, k}),
                             name({pass, k}));
      }
    }
    return "";
  }

  static std::string name(Action action) {
    action.posted = false;
    return to_string(action);
  }
  static std::string missing(ActionKind kind, int k) {
    return fmt::format("{} is missing", name({kind, k}));
  }
  int& at(ActionKind kind, int k) {
    return places_[static_cast<size_t>(k)][static_cast<size_t>(kind)];
  }

  const ActionList& actions_;
  const int microbatches_;
  const bool first_;
  const bool last_;
  std::vector<std::array<int, kKinds>> places_;  // in the list, by microbatch and kind
};

}  // namespace

std::string check_stage(const Schedule& schedule, int stage, bool program) {
  const std::string fault = StageCheck(schedule, stage).fault(program);
  return fault.empty() ? "" : fmt::format("stage {}: {}", stage, fault);
}

}  // namespace lab
