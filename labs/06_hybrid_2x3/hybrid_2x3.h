// Lab 06 · two pipelines of three stages that learn together: data parallelism across pipelines,
// pipeline parallelism within. This is the contract; you write hybrid_2x3.cpp.
//
// It works for any number of pipelines (dp, data parallelism) and of stages (pp, pipeline
// parallelism); one of either included. Functions keep nothing from one call to the next: what they
// do depends on their arguments alone.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/comm/process_group.h"
#include "common/data/batch.h"
#include "common/model/llama_stage.h"
#include "common/optim/optimizer.h"
#include "common/pipeline/schedule.h"
#include "labs/05_microbatches/microbatches.h"

namespace lab06 {

/// Where a rank stands: which stage of which pipeline it is. Both count from 0.
struct Place {
  int pipeline = 0;
  int stage = 0;

  bool operator==(const Place&) const = default;
};

/// Task 1 · The place of a rank of the world.
///
/// The ranks of a pipeline follow each other: with pp = 3, ranks 0, 1, 2 are stages 0, 1, 2 of
/// pipeline 0, ranks 3, 4, 5 those of pipeline 1, and so on.
Place place_of(int rank, int pp);

/// A rank's two groups.
struct Mesh {
  Place place;
  /// The stages of this rank's pipeline; group rank s is stage s. Activations and their gradients
  /// travel here.
  lab::ProcessGroup pipeline;
  /// The ranks that hold the same stage in all pipelines; group rank d belongs to pipeline d. They
  /// have the same weights, and only their gradients differ.
  lab::ProcessGroup replicas;
};

/// Task 2 · The mesh of dp pipelines with pp stages each. All ranks of `world` call it.
///
/// Both groups come from world.split, which is a collective: every rank of the world calls it, in
/// the same order, and gets the group of those that gave the same color. A name for each group
/// ("pipeline 1", "replicas of stage 2") makes diagnoses easier to read.
/// Throws lab::Error, before any message, unless the world has dp * pp ranks.
Mesh make_mesh(lab::ProcessGroup& world, int dp, int pp);

/// Task 3 · What a rank reads in an epoch, so that lab::Sampler can hand it out.
///
/// `order`: all sequences of the epoch, shuffled; the same on every rank. To be shared out among
/// the pipelines, `dp` of them, by the rules of lab 02's shard: disjoint, equally long, complete
/// but for a remainder. All stages of a pipeline read the same: the first one needs the tokens, the
/// last one the targets. The contracted share of pipeline d holds the positions d, d+dp, d+2dp, ...
std::vector<int64_t> shard(std::span<const int64_t> order, const Place& place, int dp);

/// Task 4 · How many targets a step has, in all pipelines together.
///
/// `microbatches`: this pipeline's. Their number of targets may differ from pipeline to pipeline.
/// Only the last stage of a pipeline may rely on its targets, and only there the result matters:
/// that is where losses are computed. Elsewhere 0 or anything else may be returned.
/// lab::sum_over (common/comm/agreement.h) adds up a number over a group. One such sum at most, and
/// the ranks of other stages need no message at all.
int64_t total_targets(const lab::LlamaStage& stage, std::span<const lab::TokenBatch> microbatches,
                      Mesh& mesh);

using LossFunction = lab05::LossFunction;

/// Task 5 · The gradients of a step: of the mean loss over all targets of all pipelines.
///
/// `schedule`: a program of m microbatches for the stages of one pipeline. All pipelines run it.
/// `microbatches`: this pipeline's, w * m of them, w >= 1, which take w waves, each by
///     lab05::run_actions on the next m. Throws lab::Error, before anything is done, if their
///     number is no such multiple. As many in every pipeline. As in lab 05 the first stage reads
///     their tokens, the last one their targets, the others neither.
/// `loss`: as in lab 05; called on last stages only. It divides by what it is told: by all targets
///     of the step.
///
/// On return stage.gradients() holds, on every rank, its stage's gradients, summed over the
/// microbatches of all pipelines; the same on all replicas of the stage, bit for bit. Gradients
/// left over from before do not matter.
/// Messages: those of the schedule once per wave, those of total_targets, and a single all_reduce
/// of stage.gradients() among the replicas of the stage. It is posted when the stage has done its
/// own last backward: it waits for the other replicas, but not for other stages. (With a single
/// pipeline there is nobody to add up with, and it may be left out.)
/// Returns, on a last stage, this pipeline's part of the mean loss: the sum of the cross-entropies
/// of its microbatches, divided by all targets of the step. Elsewhere 0.
double compute_gradients(lab::LlamaStage& stage, const lab::Schedule& schedule,
                         std::span<const lab::TokenBatch> microbatches, const LossFunction& loss,
                         Mesh& mesh);

/// Task 6 · One optimizer step of all pipelines together.
///
/// compute_gradients, clipping, update. The weights after it are those of one process with the
/// whole model that takes one step over the microbatches of all pipelines.
/// `max_gradient_norm`: of the whole model's gradient, averaged over all targets: call
///     lab::clip_gradients(stage, max_gradient_norm, group) on all ranks, with the group whose
///     ranks hold the whole model once. 0: do not clip, and send nothing for it.
/// Returns what compute_gradients returns.
double train_step(lab::LlamaStage& stage, lab::Optimizer& optimizer, const lab::Schedule& schedule,
                  std::span<const lab::TokenBatch> microbatches, const LossFunction& loss,
                  float learning_rate, double max_gradient_norm, Mesh& mesh);

/// Task 7 · The loss for the log: the mean over all targets of all pipelines, on every rank.
///
/// `loss`: what train_step returned: a pipeline's part on its last stage, 0 elsewhere. Called by
/// all ranks. Whatever messages you like, of a few bytes; lab::from_last_stage
/// (common/optim/stages.h) and lab::sum_over may help.
double mean_loss(double loss, Mesh& mesh);

}  // namespace lab06
