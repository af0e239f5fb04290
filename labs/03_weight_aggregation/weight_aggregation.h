// Lab 03 · local steps, then the average of the weights. This is the contract; you write
// weight_aggregation.cpp.
//
// The functions keep nothing between calls: what they return and send depends only on their
// arguments. `world` is the group of all ranks of the job.
#pragma once

#include <cstdint>
#include <span>

#include "common/comm/process_group.h"
#include "common/data/batch.h"
#include "common/model/llama_stage.h"
#include "common/model/loss_function.h"
#include "common/optim/optimizer.h"
#include "common/tensor/tensor.h"
#include "labs/01_single_gpu/single_gpu.h"

namespace lab03 {

/// Task 1a · How much this rank's weights count in the average.
///
/// `examples`: how much this rank learns from, in any unit that all ranks share; fractions are
///     allowed. Either 0 or at least 1e-30; their sum over the ranks is at most 1e30, and not 0.
/// Returns examples / (sum of the examples of all ranks), accurate to 1e-6 of it. It may use any
/// messages of a few numbers. All ranks call it together.
double share_of(double examples, lab::ProcessGroup& world);

/// Task 1b · Replaces the weights of every rank by their average over all ranks.
///
/// `weights`: all weights of a model in one contiguous tensor, as `model.parameters()` returns
///     them; of the same shape, whatever that is, on every rank. Afterwards it holds on every rank
///     the sum over all ranks r of share_r * weights_r, equal to the last bit on all ranks. The
///     numbers change in place, in the model's memory: a Tensor is a handle to them, and so is
///     every copy of it. The weights, and so the sum, may be infinite or NaN; a share of 0 does not
///     hide that, because 0 times infinity is NaN. On the CPU in the tests; in the program they may
///     be on a GPU.
/// `share`: this rank's, not negative; the shares of all ranks add up to 1, except for rounding.
/// The weights travel in a single all_reduce, and nothing else does; it may be left out if there is
/// only one rank, or no weight. Accepted error: 1e-6 of the sum of the magnitudes that are
/// added. All ranks call it together.
void average_weights(const lab::Tensor& weights, double share, lab::ProcessGroup& world);

/// Task 2 · Whether weights are averaged after this step: true after steps k, 2k, 3k, ...
///
/// `step`: counted from 1. `every`: k >= 1.
bool aggregation_due(int64_t step, int64_t every);

/// When weights are averaged, and how much this rank's count.
struct Aggregation {
  int64_t every = 1;   // k, in steps
  double share = 1.0;  // of this rank
};

/// Task 3 · One step of local SGD: this rank's own optimizer step, then the average if it is due.
///
/// The local step is lab 01's, on this rank's microbatches only (lab01::train_step): the mean over
/// its own targets, its own gradients, its own update. If no average is due, nothing is sent and no
/// rank waits for another, not even in a barrier. If one is due, the weights are averaged *after*
/// the ranks' updates, all of them (`model.parameters()`) in one average, which is the only
/// message. Each rank keeps its own optimizer state. What model.gradients() holds afterwards does
/// not matter.
/// `step`: number of this step, counted from 1, whatever the optimizer's count.
/// `step` and `aggregation.every` are the same on all ranks. Microbatches differ, and shares may;
/// every rank has at least one microbatch.
/// The first six arguments are lab01::train_step's.
/// Returns this rank's own loss, before the update.
double train_step(lab::LlamaStage& model, lab::Optimizer& optimizer,
                  std::span<const lab::TokenBatch> microbatches, const lab::LossFunction& loss,
                  float learning_rate, double max_gradient_norm, int64_t step,
                  const Aggregation& aggregation, lab::ProcessGroup& world);

/// Task 4 · How far the replicas have drifted apart.
///
/// `weights`, `share`: as in average_weights, but all numbers are finite. Let w be the average of
/// all ranks' weights, weighted by their shares, which count nowhere else. Rank r has drifted by
/// sqrt(sum of (w_r - w)^2 over all weights). Returns the largest drift of all ranks: the same bits
/// on every rank. Accepted error: 1e-5 of it, plus what the rounding of the average adds; so it is
/// nearly 0, but not always 0, if all replicas are equal.
/// It only measures: the weights stay as they are, to the last bit. It costs at most the traffic of
/// one average and of a few single numbers. All ranks call it together.
double drift(const lab::Tensor& weights, double share, lab::ProcessGroup& world);

}  // namespace lab03
