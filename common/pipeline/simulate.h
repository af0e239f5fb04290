// Running a schedule in simulated time.
#pragma once

#include <vector>

#include "common/pipeline/schedule.h"
#include "common/pipeline/timeline.h"

namespace lab {

/// What the passes of a stage cost, in any unit of time. A message keeps neither side busy once
/// both have begun it; its data arrives `message` units later.
struct StageCosts {
  double forward = 1;
  double backward = 2;  // two matrix products for each of the forward's
  double message = 0;   // of one that this stage sends
};

/// Every stage does its next action as soon as it can. A program's messages are as in `validate`: a
/// blocking send or recv ends when the data has arrived. In a schedule without messages, a pass
/// waits for the passes that it depends on; their data takes its time to arrive, but no stage is
/// held up by sending or receiving it.
/// `costs`: one per stage, or a single one for all.
/// Throws Error if the schedule has a fault, a cost is negative or not finite, or their number is
/// neither 1 nor that of the stages.
Timeline simulate(const Schedule& schedule, const std::vector<StageCosts>& costs = {{}});

/// The bubble of p equal stages and m microbatches, as a fraction, under GPipe and 1F1B alike:
/// (p-1) / (m+p-1) (Huang et al., "GPipe" (2019), section 2.3).
double ideal_bubble(int stages, int microbatches);

}  // namespace lab
