// The scenarios of tasks 3 to 5, and steps of the whole model.
#pragma once

#include <functional>
#include <string>

#include "common/comm/process_group.h"
#include "common/model/config.h"
#include "tests/grading/parcel.h"

namespace lab10 {

/// In the step before the one that counts, a linear layer's weights are so many times as large.
inline constexpr float kWeightsBefore = -3.0F;
/// So many times as large are the numbers in weight.rounded, which nobody should read.
inline constexpr float kRounded = 5.0F;

int int_of(const lab::grading::Parcel& input, const std::string& entry);
lab::LlamaConfig config_of(const lab::grading::Parcel& input);

/// Calls `body`, and sets `entry` to its operations.
void note_messages(const lab::ProcessGroup& world, lab::grading::Parcel& result,
                   const std::string& entry, const std::function<void()>& body);

/// Tasks 3 and 4: two microbatches in flight through one block, forward and backward, after a step
/// with the layer's initial weights in the same memory.
lab::grading::Parcel run_block(const lab::grading::Parcel& input, lab::ProcessGroup& world);
/// Task 5.
lab::grading::Parcel run_embed(const lab::grading::Parcel& input, lab::ProcessGroup& world);
lab::grading::Parcel run_loss(const lab::grading::Parcel& input, lab::ProcessGroup& world);
/// Training steps of a stage that is divided among all ranks.
lab::grading::Parcel run_steps(const lab::grading::Parcel& input, lab::ProcessGroup& world);

}  // namespace lab10
