// Correct functions of tasks 3, 4 and 5 that replace the student's, for the tests of the tasks that
// build on them.
#pragma once

#include "labs/05_microbatches/microbatches.h"

namespace lab05::correct {

/// Tasks 3 and 5: all sends blocking, or all posted.
lab::Schedule with_sends(const lab::Schedule& plan, bool posted);

/// Task 4.
double run_actions(lab::LlamaStage& stage, const lab::ActionList& actions,
                   std::span<const lab::TokenBatch> microbatches, const LossFunction& loss,
                   int64_t total_targets, lab::ProcessGroup& pipeline);

}  // namespace lab05::correct
