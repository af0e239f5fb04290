// How long a plan takes when its stages share fewer cores than there are stages.
#pragma once

#include <vector>

#include "common/pipeline/schedule.h"
#include "common/pipeline/simulate.h"

namespace lab::bench {

/// Every stage computes with one thread; when more stages could compute than there are cores, all
/// of them share the cores equally. Messages take no time. In the unit of the costs.
double time_on_shared_cores(const Schedule& plan, const std::vector<StageCosts>& costs,
                            unsigned cores);

}  // namespace lab::bench
