#include "common/tools/plan/pipeline_time.h"

#include <algorithm>

#include "common/error.h"
#include "common/tools/plan/shared_cores.h"

namespace lab {
namespace {

std::vector<double> simulated_ends(PassOrder order, int microbatches,
                                   const std::vector<StageCosts>& costs, double cores) {
  const Schedule plan = pass_plan(order, static_cast<int>(costs.size()), microbatches);
  if (cores > 0) return ends_on_shared_cores(plan, costs, cores);
  std::vector<double> ends;
  for (const RankTimeline& stage : simulate(plan, costs).ranks)
    ends.push_back(stage.spans.back().end);
  return ends;
}

}  // namespace

Schedule pass_plan(PassOrder order, int stages, int microbatches) {
  require(stages >= 1 && microbatches >= 1, "a schedule of {} stages and {} microbatches", stages,
          microbatches);
  Schedule plan{microbatches, {}};
  for (int s = 0; s < stages; ++s) {
    const int ahead = most_in_flight(order, s, stages, microbatches);
    ActionList& list = plan.stages.emplace_back();
    int forwards = 0;
    for (int k = 0; k < microbatches; ++k) {
      while (forwards < std::min(microbatches, k + ahead))
        list.push_back({ActionKind::kForward, forwards++});
      list.push_back({ActionKind::kBackward, k});
    }
  }
  return plan;
}

int most_in_flight(PassOrder order, int stage, int stages, int microbatches) {
  return order == PassOrder::kGpipe ? microbatches : std::min(microbatches, stages - stage);
}

std::vector<double> stage_ends(PassOrder order, int microbatches,
                               const std::vector<StageCosts>& costs, double cores) {
  const int many = 8 * static_cast<int>(costs.size());
  const int half_as_many = many / 2;
  if (microbatches <= many) return simulated_ends(order, microbatches, costs, cores);
  std::vector<double> ends = simulated_ends(order, many, costs, cores);
  const std::vector<double> half = simulated_ends(order, half_as_many, costs, cores);
  const double further = static_cast<double>(microbatches - many) / (many - half_as_many);
  for (size_t s = 0; s < ends.size(); ++s) ends[s] += further * (ends[s] - half[s]);
  return ends;
}

}  // namespace lab
