// What the scenarios of the rank program have in common: inputs and messages in parcels.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "common/comm/process_group.h"
#include "common/grading/parcel.h"
#include "common/optim/optimizer.h"

namespace lab05 {

/// "microbatch0", "microbatch1", ... of `input`.
std::vector<lab::TokenBatch> microbatches_of(const lab::grading::Parcel& input);

/// "sgd" or "adam".
std::unique_ptr<lab::Optimizer> make_optimizer(const std::string& name, int64_t size);

/// The messages that are done, as the flight record has them: four numbers each, 0 (send) or 1
/// (recv), peer, tag and bytes.
std::vector<double> messages_of(lab::ProcessGroup& world);

/// Throws Error if this rank has posted messages that nobody has waited for.
void require_nothing_pending(lab::ProcessGroup& world, const std::string& function);

}  // namespace lab05
