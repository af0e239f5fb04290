#include "common/tools/plan/shared_cores.h"

#include <algorithm>
#include <limits>

#include "common/error.h"
#include "common/pipeline/validate.h"

namespace lab {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

struct Stage {
  size_t next = 0;                    // in its list
  bool running = false;               // its current pass has begun
  double left = 0;                    // its remaining work
  double end = 0;                     // of the last finished pass
  std::vector<double> forward_data;   // when the input of a microbatch's forward arrives
  std::vector<double> backward_data;  // the same for its backward
};

class SharedCores {
 public:
  SharedCores(const Schedule& plan, const std::vector<StageCosts>& costs, double cores)
      : plan_(plan), costs_(costs), cores_(cores), stages_(plan.stages.size()) {
    const auto microbatches = static_cast<size_t>(plan.microbatches);
    for (Stage& stage : stages_) {
      stage.forward_data.assign(microbatches, kNever);
      stage.backward_data.assign(microbatches, kNever);
    }
    stages_.front().forward_data.assign(microbatches, 0);
  }

  std::vector<double> run() {
    while (true) {
      start_passes();
      const double active = static_cast<double>(std::ranges::count(stages_, true, &Stage::running));
      const double rate = std::min(1.0, cores_ / std::max(1.0, active));
      const double until = next_event(rate);
      if (until == kNever) break;
      advance(until, rate);
    }
    std::vector<double> ends;
    for (const Stage& stage : stages_) ends.push_back(stage.end);
    return ends;
  }

 private:
  const Action* next_pass(size_t s) const {
    const ActionList& list = plan_.stages[s];
    return stages_[s].next < list.size() ? &list[stages_[s].next] : nullptr;
  }

  /// When the data for a stage's next pass arrives.
  double data_at(size_t s, const Action& pass) const {
    const auto& times =
        pass.kind == ActionKind::kForward ? stages_[s].forward_data : stages_[s].backward_data;
    return times[static_cast<size_t>(pass.microbatch)];
  }

  void start_passes() {
    for (size_t s = 0; s < stages_.size(); ++s) {
      Stage& stage = stages_[s];
      const Action* pass = next_pass(s);
      if (stage.running || pass == nullptr || data_at(s, *pass) > now_) continue;
      stage.running = true;
      stage.left = pass->kind == ActionKind::kForward ? costs_[s].forward : costs_[s].backward;
    }
  }

  /// When the next pass ends, or data arrives that a stage waits for.
  double next_event(double rate) const {
    double until = kNever;
    for (size_t s = 0; s < stages_.size(); ++s) {
      const Action* pass = next_pass(s);
      if (stages_[s].running)
        until = std::min(until, now_ + stages_[s].left / rate);
      else if (pass != nullptr)
        until = std::min(until, data_at(s, *pass));
    }
    return until;
  }

  void advance(double until, double rate) {
    for (size_t s = 0; s < stages_.size(); ++s) {
      Stage& stage = stages_[s];
      if (!stage.running) continue;
      const bool ends = now_ + stage.left / rate <= until;
      stage.left -= (until - now_) * rate;
      if (ends) finish(s, until);
    }
    now_ = until;
  }

  void finish(size_t s, double when) {
    const Action pass = *next_pass(s);
    const auto k = static_cast<size_t>(pass.microbatch);
    Stage& stage = stages_[s];
    stage.running = false;
    stage.end = when;
    ++stage.next;
    const double arrival = when + costs_[s].message;
    if (pass.kind == ActionKind::kBackward) {
      if (s > 0) stages_[s - 1].backward_data[k] = arrival;
    } else if (s + 1 < stages_.size()) {
      stages_[s + 1].forward_data[k] = arrival;
    } else {
      stage.backward_data[k] = when;
    }
  }

  const Schedule& plan_;
  const std::vector<StageCosts>& costs_;
  double cores_;
  std::vector<Stage> stages_;
  double now_ = 0;
};

}  // namespace

std::vector<double> ends_on_shared_cores(const Schedule& plan, const std::vector<StageCosts>& costs,
                                         double cores) {
  require_valid(plan, "shared cores");
  require(!plan.has_messages(), "shared cores: expected a schedule without messages");
  require(costs.size() == plan.stages.size(), "shared cores: {} costs for {} stages", costs.size(),
          plan.stages.size());
  require(cores > 0, "{} cores: give a number above 0", cores);
  return SharedCores(plan, costs, cores).run();
}

}  // namespace lab
