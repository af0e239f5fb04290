// A plan whose stages share fewer cores than there are stages.
#pragma once

#include <vector>

#include "common/pipeline/schedule.h"
#include "common/pipeline/simulate.h"

namespace lab {

/// When each stage has done its last pass, in the unit of the costs. Every stage computes with one
/// core at most; while more stages compute than there are cores, all of them share the cores
/// equally. Messages take no core. `cores` may be a fraction: what is left of a machine for one of
/// several pipelines that do the same at the same time.
/// With as many cores as stages this is what `simulate` says.
/// Throws Error if the plan has a fault or messages, or `cores` is not positive.
std::vector<double> ends_on_shared_cores(const Schedule& plan, const std::vector<StageCosts>& costs,
                                         double cores);

}  // namespace lab
