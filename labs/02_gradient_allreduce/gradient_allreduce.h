// Lab 02 · one training step on several ranks. This is the contract; you write
// gradient_allreduce.cpp.
//
// Every rank holds the whole model and reads its own shard of the data. All ranks call every
// function except `shard` together, and each does its part, whatever data it has. No function keeps
// anything between calls: results depend on the arguments alone. `world` is the group of all ranks
// of the job.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/comm/process_group.h"
#include "common/data/batch.h"
#include "common/model/llama_stage.h"
#include "common/model/loss_function.h"
#include "common/optim/optimizer.h"
#include "common/tensor/tensor.h"

namespace lab02 {

/// Task 1 · All ranks start from the same weights: those of rank 0.
///
/// Afterwards `model` has the weights of rank 0's model on every rank, bit for bit, by whatever
/// messages. Gradients need not be sent; what they hold afterwards does not matter.
void broadcast_parameters(lab::LlamaStage& model, lab::ProcessGroup& world);

/// Task 2 · What a rank reads in an epoch.
///
/// `order`: all sequences of the epoch, shuffled; the same on every rank, new in every epoch. They
///     are numbers of sequences, all different, and not always 0 to order.size() - 1.
/// Returns the shard of `rank`, 0 <= rank < world_size. The shards of all ranks
///   - are disjoint: no sequence is read by two ranks;
///   - are equally long: a rank with one step more would wait for the others forever;
///   - are complete, except for the last order.size() % world_size sequences of `order`, which this
///     epoch leaves out (the next one leaves out others).
/// Each shard keeps its sequences in the order of `order`, which is the shuffle.
///
/// Rank r of n gets the sequences at positions r, r+n, r+2n, ... of `order`. All ranks together
/// then read in each step what one process with n times the batch would read, until the end of the
/// epoch, where that process also reads what the shards leave out. Other shards pass the test, too,
/// if they have the three properties above, keep the order, and depend on the arguments alone. If
/// there are fewer sequences than ranks, all shards are empty.
std::vector<int64_t> shard(std::span<const int64_t> order, int rank, int world_size);

/// Task 3 · Gradient aggregation: from the mean of each rank to the mean of all.
///
/// `gradients`: one tensor or several, contiguous, float32, all on one device, of the same shapes
///     on every rank; some may have no elements. Their numbers are written, though the handles are
///     const. On entry they hold the mean over this rank's targets; on return, on every rank, the
///     mean over the targets of all ranks: every target counts the same, wherever it was read.
/// `targets`: how many this rank has. May be 0; its gradients are then 0 on entry. If no rank has
///     any, all are 0 on return, too.
///
/// All gradients travel in a single all_reduce of one flat tensor. The number of targets travels in
/// a second all_reduce, of that number alone, or as one more element of the flat tensor. There are
/// no other messages; a single rank needs none, and if no rank has a target, the gradients need
/// not travel. (A float counts exactly up to 16,777,216 targets; beyond, it is accurate enough.) A
/// single gradient tensor can be sent without a copy. Accepted error: 1e-6 of the sum of the
/// magnitudes that are added.
void average_gradients(std::span<const lab::Tensor> gradients, int64_t targets,
                       lab::ProcessGroup& world);

/// What lab 01's causal_lm_loss looks like to task 4: the sum of the cross-entropies of a
/// microbatch, divided by `total_targets`, and its gradient written over the logits.
using lab::LossFunction;

/// Task 4 · One optimizer step of all ranks together.
///
/// Lab 01's train_step (its task 3) with all that it promises except for what model.gradients()
/// holds afterwards, which does not matter here; and with one addition: between the last backward
/// pass and clipping, the gradients are averaged over the ranks. `model.gradients()` then returns
/// all of them as one tensor, which average_gradients can send without a copy. To make a
/// span of it, keep it in a variable:
///     const lab::Tensor gradients = model.gradients();
///     average_gradients({&gradients, 1}, targets, world);
/// Clipping comes after averaging: it is the norm of the average that must not exceed
/// `max_gradient_norm` (0: do not clip).
///
/// `microbatches`: this rank's own. Their number, and that of their targets, may differ from rank
///     to rank; a rank without a target, or without a microbatch, takes part like all others.
///
/// Afterwards the weights are those of one process that takes one step on the microbatches of all
/// ranks. They are the same on every rank, bit for bit, if they were so before. Only gradients and
/// the number of targets travel, in at most two all_reduces: each rank updates its own weights, and
/// the optimizer's state needs no message. Returns the mean cross-entropy over this rank's own
/// targets, in nats, before the update; 0 if it has none.
double train_step(lab::LlamaStage& model, lab::Optimizer& optimizer,
                  std::span<const lab::TokenBatch> microbatches, const LossFunction& loss,
                  float learning_rate, double max_gradient_norm, lab::ProcessGroup& world);

/// Task 5 · The loss for the log: the mean over the targets of all ranks.
///
/// `loss`: the mean over this rank's `targets`, as train_step returns it.
/// Returns the same on every rank, bit for bit; 0 if no rank has a target. A rank without targets
/// passes a loss of 0. Each rank contributes no more than two numbers, in two messages at most, and
/// float is accurate enough.
double average_loss(double loss, int64_t targets, lab::ProcessGroup& world);

}  // namespace lab02
