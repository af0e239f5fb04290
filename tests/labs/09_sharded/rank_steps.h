// Scenarios of lab 09 in which ranks talk.
#pragma once

#include "common/comm/process_group.h"
#include "tests/grading/parcel.h"
#include "tests/grading/training_rank.h"

namespace lab09 {

/// In stage 1, what lies beside this rank's shard of `gradient` when run_clip clips.
inline constexpr float kBesideTheShard = 0.5F;

/// Task 2: gradients "gradient.K" of each part, reduced `times` times. Before, own_gradient holds
/// "earlier.K". Returns "own.K".
lab::grading::Parcel run_reduce(const lab::grading::Parcel& input, lab::ProcessGroup& world);

/// Task 5: shards of gradients "own.K", clipped. Returns "norm" and "own.K" again.
lab::grading::Parcel run_clip(const lab::grading::Parcel& input, lab::ProcessGroup& world);

/// The steps of a TrainingCase in stage "stage", recorded as by record_steps; also, for each step
/// S, "memory.S": bytes at the peak of each kind, and at the end of all kinds but activations.
lab::grading::Parcel run_steps(const lab::grading::Parcel& input, lab::ProcessGroup& world);

}  // namespace lab09
