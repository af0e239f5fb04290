#include "common/pipeline/simulate.h"

#include <cmath>

#include "common/error.h"
#include "common/pipeline/execution.h"

namespace lab {
namespace {

void check_cost(double cost, const char* what, size_t stage) {
  require(std::isfinite(cost) && cost >= 0,
          "simulated costs: the {} of stage {} is {}, not a finite number of at least 0", what,
          stage, cost);
}

std::vector<StageCosts> costs_of_stages(const std::vector<StageCosts>& costs, size_t stages) {
  require(costs.size() == 1 || costs.size() == stages,
          "simulated costs: there are {} for {} stages; give one per stage, or one for all",
          costs.size(), stages);
  for (size_t stage = 0; stage < costs.size(); ++stage) {
    check_cost(costs[stage].forward, "forward", stage);
    check_cost(costs[stage].backward, "backward", stage);
    check_cost(costs[stage].message, "message", stage);
  }
  return costs.size() == stages ? costs : std::vector<StageCosts>(stages, costs[0]);
}

}  // namespace

Timeline simulate(const Schedule& schedule, const std::vector<StageCosts>& costs) {
  require_valid(schedule, "cannot simulate the schedule");
  const std::vector<StageCosts> of_stages = costs_of_stages(costs, schedule.stages.size());
  Execution execution(schedule, of_stages);
  require(execution.run(), "the schedule cannot be finished");  // cannot happen: it is valid
  return execution.take_timeline();
}

double ideal_bubble(int stages, int microbatches) {
  require(stages >= 1 && microbatches >= 1,
          "the bubble of {} stages and {} microbatches: both must "
          "be at least 1",
          stages, microbatches);
  return static_cast<double>(stages - 1) / (microbatches + stages - 1);
}

}  // namespace lab
