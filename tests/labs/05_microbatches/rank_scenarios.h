// The scenarios of lab 05's rank program.
#pragma once

#include "common/comm/process_group.h"
#include "common/grading/parcel.h"

namespace lab05 {

// Schedules as data: tasks 1, 2, 3 and 5.

/// `function` for every pair of `stages` and `microbatches`.
lab::grading::Parcel run_plans(const lab::grading::Parcel& input);
/// `function` for every plan.
lab::grading::Parcel run_programs(const lab::grading::Parcel& input);

// Executing them: task 4, with the implementation's executor or the given one.

/// One wave of one rank.
lab::grading::Parcel run_wave(const lab::grading::Parcel& input, lab::ProcessGroup& world);
/// How a schedule ends in a simulation of all ranks.
lab::grading::Parcel run_to_the_end(const lab::grading::Parcel& input);

// Training: task 6.

lab::grading::Parcel run_train_step(const lab::grading::Parcel& input, lab::ProcessGroup& world);
/// Whether train_step throws lab::Error, and what it has done before.
lab::grading::Parcel run_refusal(const lab::grading::Parcel& input, lab::ProcessGroup& world);

// The oracle, without any of the lab's functions. Called on one simulated rank, so that it has as
// many threads as those that are judged.

/// Loss and gradients of each microbatch, its share of a mean over `total` targets.
lab::grading::Parcel run_parts(const lab::grading::Parcel& input, lab::ProcessGroup& world);
/// Lab 01's train_step on all microbatches.
lab::grading::Parcel run_one_process(const lab::grading::Parcel& input, lab::ProcessGroup& world);
/// All stages in one process, which mix microbatches up: the forward of microbatch k reads the
/// activation of `activation_of`[k], and so on.
lab::grading::Parcel run_mixed_up(const lab::grading::Parcel& input, lab::ProcessGroup& world);

}  // namespace lab05
