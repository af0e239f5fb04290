// Lab 08 · gradients that travel while the backward pass goes on. This is the contract; you write
// overlap.cpp.
//
// Every rank holds the whole model, as in lab 02. All ranks call train_step, `begin` and `finish`
// together. Between `begin` and `finish`, each rank calls `ready` once for each parameter, in its
// own order. One rank is no special case: it posts the same all_reduces, which return at once. The
// functions of tasks 1 and 5 send nothing. Parameters are numbered as in
// LlamaStage::named_parameters(): 0 is the embedding, the head comes last. Backward passes complete
// their gradients from the last to the first, or nearly so. No function keeps anything between
// calls but what is in the Reducer.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "common/comm/process_group.h"
#include "common/data/batch.h"
#include "common/model/llama_stage.h"
#include "common/model/loss_function.h"
#include "common/optim/optimizer.h"
#include "common/tensor/tensor.h"

namespace lab08 {

/// Parameters whose gradients travel in one message, in the order that they have there.
using Bucket = std::vector<size_t>;

/// Task 1 · Which gradients travel together.
///
/// `sizes`: of each parameter's gradient, in bytes; may be 0.
/// Goes through the parameters from the last to the first, because that is the order in which their
/// gradients become ready. A parameter joins the current bucket, as its last one, if that bucket is
/// empty or stays within its capacity with this gradient. Otherwise, the parameter begins the next
/// bucket.
/// The capacity is `first_cap_bytes` for the first bucket and `cap_bytes` for all others; either
/// may be 0. So no gradient is cut: one that is larger than the capacity has a bucket of its own.
/// No bucket is empty, but one may hold nothing but gradients of 0 bytes; it travels like any
/// other.
/// The result depends on nothing but the arguments: all ranks get the same buckets without a
/// message.
std::vector<Bucket> assign_buckets(std::span<const int64_t> sizes, int64_t cap_bytes,
                                   int64_t first_cap_bytes);

/// What a rank knows about the messages of a step.
struct Reducer {
  lab::ProcessGroup& world;
  std::vector<lab::Tensor> gradients;  // of all parameters, contiguous; their means come back here
  // Every parameter is in one, none is empty. The same on all ranks, but not always task 1's:
  std::vector<Bucket> buckets;

  // Of the step under way, set by `begin`:
  int64_t targets = 0;  // of this rank
  // [1], float32, on the CPU: this rank's targets; those of all ranks once it is summed. Together
  // they are at most 2^24, so it is exact.
  lab::Tensor total = {};
  std::vector<bool> is_ready = {};   // per parameter
  std::vector<size_t> missing = {};  // per bucket: how many of its gradients are not ready yet
  // Per bucket that has been posted, in the order of the buckets. `finish` may leave anything here.
  std::vector<lab::Tensor> flat = {};      // its gradients, in its order, times `targets`; on
                                           // their device
  std::vector<lab::Work> works = {};       // the all_reduce of `flat`
  std::optional<lab::Work> counting = {};  // the all_reduce of `total`
};

/// Task 2 · The beginning of a step: nothing is ready, nothing of this step is posted except the
/// number of targets, which needs no gradient. Resets every member of `reducer` under "Of the step
/// under way": the previous step may have ended with an error and left anything there, even tensors
/// that are still travelling, so do not use their memory again. Returns without waiting for any
/// message.
void begin(Reducer& reducer, int64_t targets);

/// Task 2 · The gradient of a parameter is complete. It is the mean over this rank's targets. If
/// there are none, it is finite, and counts 0 times.
///
/// Posts every bucket whose turn has come: all its gradients are ready, and all earlier buckets are
/// posted. Then all ranks post the buckets in the same order, although their gradients may become
/// ready in different orders; the all_reduces of a group meet in the order in which they are
/// posted. A bucket travels as one tensor, `flat`, by `all_reduce_async`, as a sum over targets:
/// each gradient times `reducer.targets`, also if that is 0. `reducer.gradients` stay as they are
/// until `finish`. Returns without waiting for any message.
/// Throws lab::Error, and changes and posts nothing, if this parameter was already ready in this
/// step.
void ready(Reducer& reducer, size_t parameter);

/// Task 3 · The end of a step: waits for all buckets and for the number of targets, and writes into
/// `reducer.gradients`, in place, the mean over the targets of all ranks; 0 if no rank has any.
/// Nothing is sent.
/// Throws lab::Error, before it waits for anything, if a gradient has not become ready, whether
/// this rank has targets or not: its bucket was never posted, so all ranks would wait for it
/// forever. The message has the number of such a parameter.
void finish(Reducer& reducer);

/// What lab 01's causal_lm_loss looks like to task 4.
using lab::LossFunction;

/// Task 4 · One optimizer step of all ranks together: lab 02's train_step, but gradients travel
/// during the backward pass.
///
/// Gradients add up over this rank's microbatches. Before its last backward pass they are not
/// complete, so no gradient may be sent until then: give `model.when_gradient_ready` a function
/// that calls `ready` for the last one only, and an empty one, `{}`, before the step returns (if it
/// throws, either may stay). A microbatch without targets adds nothing: run its passes all the
/// same, or leave it out; then the last one is the last that you run. As in lab
/// 01 a microbatch's backward pass comes before the forward pass of the next one. Gradients left
/// over from before do not matter: the step sets them to 0 first. On a rank that runs no microbatch
/// they stay 0, and it calls `ready` for all parameters, from the last to the first. `begin` comes
/// before the first forward pass, so that the number of targets has all the time there is, and
/// `finish` after the last backward pass. Nothing is waited for before `finish`.
/// `reducer.gradients` are those of `model`, in the order of named_parameters(). Everything else is
/// as in lab 02: `loss` gets the number of this rank's targets in the step, which may be 0 (you may
/// pass 1 instead); clipping (if `max_gradient_norm` is positive) comes when the gradients are the
/// means over all ranks; and every rank updates its own weights, even in a step without any target,
/// when the gradients are 0.
/// Returns the mean cross-entropy over this rank's own targets; 0 if it has none.
double train_step(lab::LlamaStage& model, lab::Optimizer& optimizer,
                  std::span<const lab::TokenBatch> microbatches, const LossFunction& loss,
                  float learning_rate, double max_gradient_norm, Reducer& reducer);

/// A network as the alpha-beta model describes it.
struct Network {
  double alpha = 0;  // s per message
  double beta = 0;   // s per byte
  int ranks = 1;

  /// How long an all_reduce of this many bytes takes as a ring: 2(n-1) steps of 1/n of them.
  double seconds(int64_t bytes) const {
    const double part = static_cast<double>(bytes) / ranks;
    return 2.0 * (ranks - 1) * (alpha + beta * part);
  }
};

/// Task 5 · How long a rank waits for messages after its backward pass, in seconds.
///
/// `ready_at`: when each parameter's gradient is ready, in seconds from the beginning of the
/// backward pass, the same on all ranks. The backward pass ends when the last gradient is ready.
/// Buckets travel one after the other; each starts when it has been posted (task 2) and the one
/// before it has arrived. The number of targets is left out. The buckets hold every parameter.
/// Without any bucket, nothing is exposed. Computed in double.
double exposed_seconds(std::span<const int64_t> sizes, std::span<const double> ready_at,
                       std::span<const Bucket> buckets, const Network& network);

/// Task 5 · The capacity among `caps` (in bytes, in any order, at least one) whose buckets leave
/// the least exposed; the first bucket has the same capacity. If exposed_seconds returns exactly
/// the same number for several, the largest of them: fewer messages.
int64_t choose_cap(std::span<const int64_t> sizes, std::span<const double> ready_at,
                   std::span<const int64_t> caps, const Network& network);

/// Given: a Reducer for all parameters of `model`, with buckets by task 1.
inline Reducer make_reducer(const lab::LlamaStage& model, int64_t cap_bytes,
                            int64_t first_cap_bytes, lab::ProcessGroup& world) {
  std::vector<lab::Tensor> gradients;
  std::vector<int64_t> sizes;
  for (const lab::Parameter& parameter : model.named_parameters()) {
    gradients.push_back(parameter.gradient);
    sizes.push_back(static_cast<int64_t>(parameter.gradient.bytes()));
  }
  return {.world = world,
          .gradients = std::move(gradients),
          .buckets = assign_buckets(sizes, cap_bytes, first_cap_bytes)};
}

}  // namespace lab08
