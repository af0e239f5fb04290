// Schedules of pipelines, and programs for them, for tests.
#pragma once

#include <algorithm>

#include "common/pipeline/schedule.h"

namespace lab {

/// All forwards, then all backwards.
inline Schedule gpipe_plan(int stages, int microbatches) {
  Schedule plan{microbatches, std::vector<ActionList>(static_cast<size_t>(stages))};
  for (ActionList& actions : plan.stages)
    for (const ActionKind kind : {ActionKind::kForward, ActionKind::kBackward})
      for (int k = 0; k < microbatches; ++k) actions.push_back({kind, k});
  return plan;
}

/// Warm-up, one forward and one backward in turn, cool-down.
inline Schedule one_f_one_b_plan(int stages, int microbatches) {
  Schedule plan{microbatches, std::vector<ActionList>(static_cast<size_t>(stages))};
  for (int stage = 0; stage < stages; ++stage) {
    ActionList& actions = plan.stages[static_cast<size_t>(stage)];
    int forwards = 0;
    for (int backwards = 0; backwards < microbatches; ++backwards) {
      const int ahead = std::min(microbatches, backwards + stages - stage);
      while (forwards < ahead) actions.push_back({ActionKind::kForward, forwards++});
      actions.push_back({ActionKind::kBackward, backwards});
    }
  }
  return plan;
}

/// A recv right before the pass that reads it, a send right after the pass that makes it.
/// `posted_sends`: the sends are posted; the recvs never are.
inline Schedule with_messages_beside(const Schedule& plan, bool posted_sends) {
  Schedule program{plan.microbatches, {}};
  const int last = plan.stage_count() - 1;
  for (int stage = 0; stage <= last; ++stage) {
    ActionList actions;
    for (const Action& pass : plan.stages[static_cast<size_t>(stage)]) {
      const bool forward = pass.kind == ActionKind::kForward;
      const int k = pass.microbatch;
      if (stage != (forward ? 0 : last))
        actions.push_back({forward ? ActionKind::kRecvActivation : ActionKind::kRecvGradient, k});
      actions.push_back(pass);
      if (stage != (forward ? last : 0))
        actions.push_back(
            {forward ? ActionKind::kSendActivation : ActionKind::kSendGradient, k, posted_sends});
    }
    program.stages.push_back(std::move(actions));
  }
  return program;
}

}  // namespace lab
