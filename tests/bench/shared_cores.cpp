#include "tests/bench/shared_cores.h"

#include <algorithm>
#include <limits>

#include "common/pipeline/validate.h"

namespace lab::bench {
namespace {

struct Stage {
  size_t next = 0;       // in its list
  double left = 0.0;     // work of its current pass
  bool running = false;  // its current pass has begun
  std::vector<bool> forward_done;
  std::vector<bool> backward_done;
};

}  // namespace

double time_on_shared_cores(const Schedule& plan, const std::vector<StageCosts>& costs,
                            unsigned cores) {
  require_valid(plan, "time_on_shared_cores");
  const auto count = static_cast<size_t>(plan.microbatches);
  std::vector<Stage> stages(plan.stages.size());
  for (Stage& stage : stages) {
    stage.forward_done.resize(count);
    stage.backward_done.resize(count);
  }
  const auto ready = [&](size_t s, const Action& pass) {
    const auto k = static_cast<size_t>(pass.microbatch);
    if (pass.kind == ActionKind::kForward) return s == 0 || bool{stages[s - 1].forward_done[k]};
    return s + 1 == stages.size() || bool{stages[s + 1].backward_done[k]};
  };
  double now = 0.0;
  while (true) {
    double shortest = std::numeric_limits<double>::infinity();
    unsigned active = 0;
    for (size_t s = 0; s < stages.size(); ++s) {
      Stage& stage = stages[s];
      if (!stage.running && stage.next < plan.stages[s].size()) {
        const Action& pass = plan.stages[s][stage.next];
        stage.running = ready(s, pass);
        stage.left = pass.kind == ActionKind::kForward ? costs[s].forward : costs[s].backward;
      }
      if (!stage.running) continue;
      ++active;
      shortest = std::min(shortest, stage.left);
    }
    if (active == 0) return now;
    const double rate = std::min(1.0, static_cast<double>(cores) / active);
    now += shortest / rate;
    for (size_t s = 0; s < stages.size(); ++s) {
      Stage& stage = stages[s];
      if (!stage.running) continue;
      stage.left -= shortest;
      if (stage.left > 1e-9) continue;
      const Action& pass = plan.stages[s][stage.next++];
      auto& done = pass.kind == ActionKind::kForward ? stage.forward_done : stage.backward_done;
      done[static_cast<size_t>(pass.microbatch)] = true;
      stage.running = false;
    }
  }
}

}  // namespace lab::bench
