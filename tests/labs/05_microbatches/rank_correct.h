// A correct executor that replaces the student's, for the tests of the tasks that build on it.
#pragma once

#include "labs/05_microbatches/microbatches.h"

namespace lab05::given_4b {

/// Tasks 4a and 4b.
double run_actions(lab::LlamaStage& stage, const lab::ActionList& actions,
                   std::span<const lab::TokenBatch> microbatches, const LossFunction& loss,
                   int64_t total_targets, lab::ProcessGroup& pipeline);

}  // namespace lab05::given_4b
