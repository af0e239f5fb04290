// Lab 06 · two pipelines of three stages that learn together: data parallelism across pipelines,
// pipeline parallelism within. This is the contract; you write hybrid_2x3.cpp.
//
// Everything works for any number of pipelines (dp, data parallelism) and of stages (pp, pipeline
// parallelism), including a single one of either. Functions keep no state between calls: the result
// depends only on the arguments.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/comm/process_group.h"
#include "common/data/batch.h"
#include "common/model/llama_stage.h"
#include "common/model/loss_function.h"
#include "common/optim/optimizer.h"
#include "common/pipeline/schedule.h"
#include "labs/05_microbatches/microbatches.h"

namespace lab06 {

/// Which stage of which pipeline a rank is. Both count from 0.
struct Place {
  int pipeline = 0;
  int stage = 0;

  bool operator==(const Place&) const = default;
};

/// Task 1 · The place of a rank of the world.
///
/// The ranks of a pipeline are adjacent: with pp = 3, ranks 0, 1, 2 are stages 0, 1, 2 of
/// pipeline 0, ranks 3, 4, 5 those of pipeline 1, and so on. `rank` is at least 0, `pp` at least 1.
Place place_of(int rank, int pp);

/// A rank's two groups. A ProcessGroup can be moved but neither made without arguments nor
/// assigned: return a Mesh in braces, whose parts are made in the order in which they are written.
struct Mesh {
  Place place;
  /// The stages of this rank's pipeline; group rank s is stage s. Activations and their gradients
  /// travel here.
  lab::ProcessGroup pipeline;
  /// The ranks that hold the same stage, one in each pipeline; group rank d belongs to pipeline d.
  /// They have the same weights and read different sequences.
  lab::ProcessGroup replicas;
};

/// Task 2 · The mesh of dp pipelines with pp stages each. `world` holds all ranks of the job; all
/// of them call it.
///
/// Both groups come from world.split, a collective: every rank of the world calls it twice, for the
/// two groups in the same order, whichever that is. There are no other messages. Each call returns
/// the group of the ranks that passed the same color. You need not name the groups, but names
/// ("pipeline 1", "replicas of stage 2") make diagnoses easier to read.
/// Throws lab::Error, before any message, unless the world has dp * pp ranks; also if dp or pp is
/// 0. Neither is ever negative, and their product fits into an int.
Mesh make_mesh(lab::ProcessGroup& world, int dp, int pp);

/// Task 3 · The shard that a rank reads in an epoch; lab::Sampler takes batches from it.
///
/// `order`: all sequences of the epoch, shuffled; the same on every rank. They are dealt out to the
/// `dp` pipelines by the rules that lab 02 has for ranks: shards are disjoint and equally long,
/// keep the epoch's order, and leave out only the last order.size() % dp sequences. All stages of a
/// pipeline read the same sequences: the first stage needs the tokens, the last one the targets.
/// One way is that pipeline d reads positions d, d+dp, d+2dp, ...; any other that obeys the rules
/// is right, too. With fewer sequences than pipelines all shards are empty.
std::vector<int64_t> shard(std::span<const int64_t> order, const Place& place, int dp);

/// Task 4 · How many targets a step has, in all pipelines together.
///
/// `microbatches`: this pipeline's. The number of targets may differ from pipeline to pipeline.
/// Only the last stage of a pipeline (the one with the head) may rely on its targets, and only
/// there does the result matter, because losses are computed there. Other stages may return
/// anything, e.g. 0. Their microbatches may have no tokens, and target_count would throw.
/// lab::sum_over (common/comm/agreement.h) adds up a number over a group. A rank takes part in one
/// such sum at most; the ranks of other stages need not take part in any.
int64_t total_targets(const lab::LlamaStage& stage, std::span<const lab::TokenBatch> microbatches,
                      Mesh& mesh);

using lab::LossFunction;

/// Task 5 · The gradients of a step: of the mean loss over all targets of all pipelines.
///
/// `schedule`: a program of m >= 1 microbatches that lab::validate accepts, with one list for each
///     stage of a pipeline. All pipelines run it.
/// `microbatches`: this pipeline's, as many as every other pipeline's: w * m for w waves, at least
///     one; lab05::run_actions runs each wave on the next m. Throws lab::Error, before anything
///     else happens, if they are not whole waves or there are none. As in lab 05 the first stage
///     reads their tokens, the last one their targets. The others read neither.
/// `loss`: as in lab 05; called on last stages only, also for microbatches without targets. It
///     divides by the number it is given, which is all targets of the step, as total_targets
///     returns it. Without any target it may be 0 or 1; gradients and losses are then 0.
///
/// On return stage.gradients() holds, on every rank, its stage's gradients, summed over the
/// microbatches of all pipelines; the same on all replicas of the stage, bit for bit. Gradients
/// left over from an earlier step do not matter.
/// Messages: those of the schedule once per wave, those of total_targets once per step, and a
/// single all_reduce of stage.gradients() among the replicas of the stage. A rank calls it right
/// after the last backward of its own stage, without waiting for other stages. (With a single
/// pipeline there is nothing to add, and you may leave the all_reduce out.)
/// Returns, on a last stage, this pipeline's part of the mean loss: the sum of the cross-entropies
/// of its microbatches, divided by all targets of the step. Elsewhere 0.
double compute_gradients(lab::LlamaStage& stage, const lab::Schedule& schedule,
                         std::span<const lab::TokenBatch> microbatches, const LossFunction& loss,
                         Mesh& mesh);

/// Task 6 · One optimizer step of all pipelines together.
///
/// compute_gradients, clipping, update. Afterwards the weights are those of one process that holds
/// the whole model and takes one step over the microbatches of all pipelines.
/// `max_gradient_norm`: if it is positive (it may be infinite), all ranks call
///     lab04::clip_gradients(stage, max_gradient_norm, group) once, with the group whose ranks hold
///     the whole model exactly once. If it is 0, do not clip, and send nothing for it. It is never
///     negative.
/// There are no messages but those of compute_gradients and of clipping. A step without any target
/// is an update like any other. What stage.gradients() holds afterwards does not matter. Returns
/// what compute_gradients returns.
double train_step(lab::LlamaStage& stage, lab::Optimizer& optimizer, const lab::Schedule& schedule,
                  std::span<const lab::TokenBatch> microbatches, const LossFunction& loss,
                  float learning_rate, double max_gradient_norm, Mesh& mesh);

/// Task 7 · The loss for the log: the mean over all targets of all pipelines, the same bits on
/// every rank.
///
/// `loss`: what train_step returned: a pipeline's part on its last stage, 0 elsewhere. If a part is
/// infinite or not a number, so is the mean. Called by all ranks. Any messages of a few bytes are
/// allowed, and float is accurate enough; lab::from_last_stage and lab::sum_over
/// (common/comm/agreement.h) may help.
double mean_loss(double loss, Mesh& mesh);

}  // namespace lab06
