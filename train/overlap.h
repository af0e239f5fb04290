// --overlap: lab 06's step with lab 08's buckets.
#pragma once

#include <span>

#include "labs/06_hybrid_2x3/hybrid_2x3.h"
#include "labs/08_overlap/overlap.h"

namespace train {

/// Buckets for the gradients of `stage`, which travel among its replicas.
lab08::Reducer make_reducer(const lab::LlamaStage& stage, lab06::Mesh& mesh);

/// What lab06::train_step does, but each bucket of gradients travels as soon as the stage's last
/// backward pass has completed it. The weights are those of train_step, within rounding.
/// `reducer`: that of this stage and mesh.
double overlapped_step(lab::LlamaStage& stage, lab::Optimizer& optimizer,
                       const lab::Schedule& schedule, std::span<const lab::TokenBatch> microbatches,
                       const lab::LossFunction& loss, float learning_rate, double max_gradient_norm,
                       lab06::Mesh& mesh, lab08::Reducer& reducer);

}  // namespace train
