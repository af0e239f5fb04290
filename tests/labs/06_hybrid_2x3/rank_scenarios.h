// The scenarios of lab 06's rank program.
#pragma once

#include "common/comm/process_group.h"
#include "common/grading/parcel.h"

namespace lab06 {

// Tasks 1 and 3, without any message.

/// place_of for the ranks 0 to "ranks" - 1.
lab::grading::Parcel run_places(const lab::grading::Parcel& input);
/// The shares of all stages of all pipelines, twice.
lab::grading::Parcel run_shards(const lab::grading::Parcel& input);

// Task 2, with the given place_of.

/// What make_mesh returns; with "talk" also what arrives over both groups.
lab::grading::Parcel run_mesh(const lab::grading::Parcel& input, lab::ProcessGroup& world);
/// Whether make_mesh throws lab::Error, and what it has sent before.
lab::grading::Parcel run_mesh_refusal(const lab::grading::Parcel& input, lab::ProcessGroup& world);

// Tasks 4, 5 and 7, on a mesh that the tests have made.

lab::grading::Parcel run_total_targets(const lab::grading::Parcel& input, lab::ProcessGroup& world);
/// compute_gradients, with a correct total_targets (partly_given.cpp).
lab::grading::Parcel run_gradients(const lab::grading::Parcel& input, lab::ProcessGroup& world);
/// Whether compute_gradients throws lab::Error, and what it has done before.
lab::grading::Parcel run_gradients_refusal(const lab::grading::Parcel& input,
                                           lab::ProcessGroup& world);
lab::grading::Parcel run_mean_loss(const lab::grading::Parcel& input, lab::ProcessGroup& world);

// Task 6, with the given compute_gradients.

lab::grading::Parcel run_train_step(const lab::grading::Parcel& input, lab::ProcessGroup& world);

// The oracle, without any of the lab's functions. Called on one simulated rank, so that it has as
// many threads as those that are judged.

/// Loss and gradients of each microbatch of each pipeline, divided by "total"; and the gradients of
/// the whole step, added up first in each pipeline and then over the pipelines.
lab::grading::Parcel run_parts(const lab::grading::Parcel& input, lab::ProcessGroup& world);
/// Several such steps.
lab::grading::Parcel run_one_process(const lab::grading::Parcel& input, lab::ProcessGroup& world);

}  // namespace lab06
