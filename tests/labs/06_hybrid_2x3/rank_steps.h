// Correct functions of the contract, and the scenarios of tasks 5 and 6.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "labs/06_hybrid_2x3/hybrid_2x3.h"
#include "tests/grading/parcel.h"

namespace lab06 {

int int_of(const lab::grading::Parcel& input, const std::string& entry);

namespace given_2 {
/// Pipelines of `pp` stages: groups "pipeline 0" and "replicas of stage 0".
Mesh make_mesh(lab::ProcessGroup& world, int pp);
}  // namespace given_2

namespace given_4 {
int64_t total_targets(const lab::LlamaStage& stage, std::span<const lab::TokenBatch> microbatches,
                      Mesh& mesh);
}  // namespace given_4

namespace given_5 {
double compute_gradients(lab::LlamaStage& stage, const lab::Schedule& schedule,
                         std::span<const lab::TokenBatch> microbatches, const LossFunction& loss,
                         Mesh& mesh);
}  // namespace given_5

/// Those of the input's only step.
std::vector<lab::TokenBatch> microbatches_of(const lab::grading::Parcel& input);

/// Calls `body`, and sets "sent": its operations.
void note_messages(const lab::ProcessGroup& world, lab::grading::Parcel& result,
                   const std::function<void()>& body);

/// compute_gradients, and then the optimizer.
lab::grading::Parcel run_gradients(const lab::grading::Parcel& input, lab::ProcessGroup& world);
/// compute_gradients with microbatches that make no waves.
lab::grading::Parcel run_gradients_refused(const lab::grading::Parcel& input,
                                           lab::ProcessGroup& world);
lab::grading::Parcel run_train_step(const lab::grading::Parcel& input, lab::ProcessGroup& world);

}  // namespace lab06
