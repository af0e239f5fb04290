// A schedule whose stages share fewer cores than there are stages.
#pragma once

#include <vector>

#include "common/pipeline/schedule.h"
#include "common/pipeline/simulate.h"

namespace lab {

/// When each stage has done its last pass, in the unit of the costs. Every stage computes with at
/// most one core; while more stages compute than there are cores, they share the cores equally.
/// Messages need no core. `cores` may be a fraction: one pipeline's part of a machine that several
/// pipelines share. With as many cores as stages, the result is that of `simulate`. Throws Error if
/// the schedule has a fault or messages, or `cores` is not positive.
std::vector<double> ends_on_shared_cores(const Schedule& plan, const std::vector<StageCosts>& costs,
                                         double cores);

}  // namespace lab
