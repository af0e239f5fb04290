// Lab 02 · one training step on several ranks. This is the contract; you write
// gradient_allreduce.cpp.
//
// Every rank holds the whole model and reads its own share of the data. All functions but `shard`
// are called by all ranks at the same time, and all ranks must take part in every message of them.
// No function keeps anything between calls: what it does depends on its arguments alone.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/comm/process_group.h"
#include "common/data/batch.h"
#include "common/model/llama_stage.h"
#include "common/optim/optimizer.h"
#include "common/tensor/tensor.h"

namespace lab02 {

/// Task 1 · All ranks start from the same weights: those of rank 0.
///
/// Afterwards `model` has the weights of rank 0's model on every rank, bit for bit. Gradients do
/// not matter, and need not be sent.
void broadcast_parameters(lab::LlamaStage& model, lab::ProcessGroup& world);

/// Task 2 · What a rank reads in an epoch.
///
/// `order`: all sequences of the epoch, shuffled; the same on every rank, new in every epoch.
/// Returns this rank's share, 0 <= rank < world_size. The shares of all ranks
///   - are disjoint: no sequence is read by two ranks;
///   - are complete but for the last order.size() % world_size sequences of `order`, which this
///     epoch leaves out (the next one leaves out others), so that they
///   - are equally long: a rank with one step more would wait for the others for ever.
///
/// The contracted share of rank r of n holds the positions r, r+n, r+2n, ... of `order`: then all
/// ranks together read in a step what one process with n times the batch would read in it, until
/// the end of the epoch, where that process also reads what the shards leave out. Any other share
/// with the three properties passes the test as well, if it depends on nothing but the arguments.
/// If there are fewer sequences than ranks, all shares are empty.
std::vector<int64_t> shard(std::span<const int64_t> order, int rank, int world_size);

/// Task 3 · Gradient aggregation: from the mean of each rank to the mean of all.
///
/// `gradients`: one tensor or several, contiguous, of the same shapes on every rank. On entry they
///     hold the mean over this rank's targets; on return, on every rank, the mean over the targets
///     of all ranks: every target counts the same, wherever it was read.
/// `targets`: how many this rank has; may be 0, and then its gradients are 0. If no rank has any,
///     all gradients become 0.
///
/// All gradients travel together, in a single all_reduce of one flat tensor; a second one, of a
/// single number, tells the ranks how many targets there are in all. No other message. (A float
/// counts exactly up to 16,777,216 targets.) A single gradient tensor is flat as it is: it needs no
/// copy.
void average_gradients(std::span<const lab::Tensor> gradients, int64_t targets,
                       lab::ProcessGroup& world);

/// What lab 01's causal_lm_loss looks like to task 4: the sum of the cross-entropies of a
/// microbatch, divided by `total_targets`, and its gradient in the place of the logits.
using LossFunction = double (*)(const lab::Tensor& logits, const lab::TokenBatch& batch,
                                int64_t total_targets);

/// Task 4 · One optimizer step of all ranks together.
///
/// Lab 01's train_step (its task 3), with one stop on the way: between the last backward pass and
/// clipping, the gradients are averaged over the ranks. `model.gradients()` is one tensor, so that
/// average_gradients sends it as it is. Clipping comes after averaging: it is the norm of the
/// average that must not exceed `max_gradient_norm` (0: do not clip).
///
/// `microbatches`: this rank's own. Their number, and that of their targets, may differ from rank
///     to rank; a rank without a single target, or without a microbatch, takes part like all
///     others.
///
/// The weights after it are those of one process that takes one step on the microbatches of all
/// ranks, and the same on every rank, bit for bit, if they were so before. Nothing but gradients
/// and the number of targets travels, in at most two all_reduces: each rank makes the same update
/// of the same weights by itself, and the optimizer's state needs no message.
/// Returns the mean cross-entropy over this rank's own targets, in nats, before the update; 0 if it
/// has none.
double train_step(lab::LlamaStage& model, lab::Optimizer& optimizer,
                  std::span<const lab::TokenBatch> microbatches, LossFunction loss,
                  float learning_rate, double max_gradient_norm, lab::ProcessGroup& world);

/// Task 5 · The loss for the log: the mean over the targets of all ranks.
///
/// `loss`: the mean over this rank's `targets`, as train_step returns it.
/// Returns the same on every rank; 0 if no rank has a target. A message of a number or two, which
/// the program sends every n steps only.
double average_loss(double loss, int64_t targets, lab::ProcessGroup& world);

}  // namespace lab02
