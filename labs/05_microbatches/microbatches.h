// Lab 05 · a pipeline that is kept busy: microbatches, GPipe and 1F1B, and messages that cannot
// deadlock. This is the contract; you write microbatches.cpp.
//
// Rank r of `pipeline` is stage r and holds the weights of its own layers. A schedule says what
// each stage does, and in which order: read common/pipeline/schedule.h first. In parameter names,
// `plan` is a schedule without messages.
//
// Functions keep nothing between calls; what they do depends only on their arguments.
#pragma once

#include <cstdint>
#include <span>

#include "common/comm/process_group.h"
#include "common/data/batch.h"
#include "common/model/llama_stage.h"
#include "common/model/loss_function.h"
#include "common/optim/optimizer.h"
#include "common/pipeline/schedule.h"
#include "common/tensor/tensor.h"

namespace lab05 {

// --- 5A · Schedules as data. Both functions return schedules without messages, only forwards and
// backwards, for any number of stages and microbatches from 1 on, even for fewer microbatches
// than stages.

/// Task 1 · GPipe (Huang et al., 2019): every stage does all forwards, then all backwards, both in
/// the order of the microbatches.
lab::Schedule gpipe(int stages, int microbatches);

/// Task 2 · 1F1B, also called PipeDream-flush (Narayanan et al., 2021); one of DAPPLE's two
/// variants (Fan et al., 2021).
///
/// With p stages and m microbatches, warm-up: stage r begins with min(m, p-1-r) forwards, one for
/// each stage downstream if there are as many microbatches. Steady state: one forward, then one
/// backward, in turn. Cool-down: the remaining backwards. Forwards and backwards are each in the
/// order of the microbatches. So stage r never has more than min(m, p-r) microbatches in flight. If
/// all stages are equally fast and messages take no time, the makespan is GPipe's.
lab::Schedule one_f_one_b(int stages, int microbatches);

// --- 5B · An executor, and a deadlock.

/// Task 3 · The program that comes to mind first: just before each pass the stage receives what the
/// pass reads, and just after it sends what the pass has made. All messages are blocking.
///
/// `plan`: any schedule without messages that lab::validate accepts. The first stage receives no
/// activation and sends no gradient; the last one sends no activation and receives no gradient.
/// Nothing is posted. For GPipe that works. For 1F1B the result deadlocks, and the test wants to
/// see it do so.
lab::Schedule with_blocking_messages(const lab::Schedule& plan);

/// What lab 01's causal_lm_loss looks like here: the sum of the cross-entropies of a microbatch,
/// divided by `total_targets`. It replaces the logits with their gradient.
using lab::LossFunction;

/// Task 4a · What one stage does in one wave, that is, in one run of the schedule: `actions`, one
/// after the other. In this task no message is posted.
///
/// Works for every stage of a program (messages included) that lab::validate accepts, in whatever
/// order its passes come. Microbatch k is microbatches[k], and k is its number in stage.forward and
/// stage.backward. Messages about microbatch k have the tag k; an activation or gradient is [B, T,
/// C], float32, on stage.device(), with microbatch k's own B and T, and C = stage.config().dim. A
/// send that is not posted is done when the next action begins, as with `send`. A recv that is not
/// posted begins in its place and is done by the time the pass that reads it begins; the simplest
/// way is `recv`.
/// `microbatches`: each has the same shape on every rank, but B and T may differ from one to the
///     next. The first stage reads their tokens, the last one their targets. The others read
///     neither.
/// `loss`: called on the last stage once per microbatch, between its forward and its backward, even
///     without any target; with `total_targets`, which may be 0 (you may pass 1 instead).
/// The messages are those of the list, and no others. When the last action of a microbatch is done,
/// none of its tensors is kept: memory grows with the microbatches in flight, not with all of them.
/// Adds to the stage's gradients. Returns the sum of the losses on the last stage, 0 on the others.
///
/// Task 4b · The same function, for lists in which some messages are posted.
///   - A posted send begins in its place and is waited for when all actions are done.
///   - A posted recv begins in its place, or earlier, and is waited for where the pass that reads
///     it begins.
/// A posted message may keep its tensor to the end. Nothing may write to a tensor that is being
/// sent until its data has arrived on the other side.
double run_actions(lab::LlamaStage& stage, const lab::ActionList& actions,
                   std::span<const lab::TokenBatch> microbatches, const LossFunction& loss,
                   int64_t total_targets, lab::ProcessGroup& pipeline);

// --- 5C · No deadlock.

/// Task 5 · The passes of `plan`, in their order, with the same messages as in task 3. You choose
/// where in a list each message stands, and whether it is posted, so that
///   - for every `plan` that lab::validate accepts the program is free of deadlocks, although a
///     send that is not posted blocks until the other side has begun the recv;
///   - messages hold no stage up: lab::simulate gives the program the same makespan as `plan`, as
///     long as no message takes longer than the shortest of all passes on all stages;
///   - at most two recvs are open at any place of a list: a recv is open from its place to the pass
///     that reads it, and needs a tensor for as long.
/// You may use lab::validate and lab::simulate while you try.
lab::Schedule with_messages(const lab::Schedule& plan);

/// Task 6 · One optimizer step of the whole pipeline, over one or several waves.
///
/// `schedule`: a program of m >= 1 microbatches that lab::validate accepts, with one list for each
///     rank of `pipeline`.
/// `microbatches`: w * m of them, at least one wave (w >= 1); each wave runs the schedule on the
///     next m. Any other number, including 0, is refused on every rank: throws lab::Error before
///     anything is done.
/// All waves together are one step: gradients of all microbatches add up, every target of the step
/// counts the same, and there is one update, after the last wave. Weights and loss are those of one
/// process with the whole model that takes lab 01's train_step over the same microbatches; a step
/// without any target is an update, too. Gradients left over from before do not matter.
/// `loss`: as in task 4a. The last stage counts the targets of the whole step, which needs no
///     message. On the others the count does not matter; a microbatch there may have no tokens, and
///     target_count would throw. There are no messages but those of the
///     schedule and for clipping.
/// `max_gradient_norm`: if it is positive, all ranks call lab04::clip_gradients(stage,
///     max_gradient_norm, pipeline) once, before the update. If it is 0, do not clip. It may be
///     infinite, and is never negative.
/// Returns the mean loss over all targets on the last stage, 0 on the others.
double train_step(lab::LlamaStage& stage, lab::Optimizer& optimizer, const lab::Schedule& schedule,
                  std::span<const lab::TokenBatch> microbatches, const LossFunction& loss,
                  float learning_rate, double max_gradient_norm, lab::ProcessGroup& pipeline);

}  // namespace lab05
