// What the scenarios of the rank program have in common: mesh, stage, inputs and messages.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/comm/process_group.h"
#include "common/grading/parcel.h"
#include "labs/06_hybrid_2x3/hybrid_2x3.h"

namespace lab06 {

int int_of(const lab::grading::Parcel& input, const std::string& name);

/// The mesh of "dp" pipelines of "pp" stages, made by the tests and not by make_mesh.
Mesh mesh_of(const lab::grading::Parcel& input, lab::ProcessGroup& world);

/// This rank's part of the tests' model: six layers over up to six stages, as evenly as it goes.
lab::LlamaStage stage_of(const Mesh& mesh);

/// The program "schedule", "1f1b" or "gpipe", for "pp" stages and "wave" microbatches.
lab::Schedule schedule_of(const lab::grading::Parcel& input);

/// "microbatch.0", "microbatch.1", ... of `input`.
std::vector<lab::TokenBatch> microbatches_of(const lab::grading::Parcel& input);

/// The number of the newest operation of this rank that is done.
uint64_t last_operation(const lab::ProcessGroup& world);

/// Operations that are done, numbers `after` + 1 to `last`, as the flight record has them: seven
/// numbers each, see `Operation` in verdict_operations.h.
std::vector<double> operations_of(const lab::ProcessGroup& world, uint64_t after,
                                  uint64_t last = UINT64_MAX);

/// Throws Error if this rank has posted messages that nobody has waited for.
void require_nothing_pending(const lab::ProcessGroup& world, const std::string& function);

}  // namespace lab06
