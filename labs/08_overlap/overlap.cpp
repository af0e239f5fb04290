// Lab 08 · gradients that travel while the backward pass goes on. You write this file; overlap.h is
// its contract.
#include "labs/08_overlap/overlap.h"

#include <algorithm>

#include "common/error.h"
#include "common/ops/ops.h"
#include "common/optim/clip.h"
#include "common/todo.h"

namespace lab08 {

std::vector<Bucket> assign_buckets(std::span<const int64_t> sizes, int64_t cap_bytes,
                                   int64_t first_cap_bytes) {
  // TODO(1): from the last parameter to the first, fill one bucket after the other.
  //  1. What is the capacity of the bucket that is being filled?
  //  2. When does a parameter begin a new bucket? Think of one that is larger than the capacity.
  lab::not_implemented("1", "labs/08_overlap/overlap.cpp");
}

void begin(Reducer& reducer, int64_t targets) {
  // TODO(2): forget the step before, and post the number of targets.
  lab::not_implemented("2", "labs/08_overlap/overlap.cpp");
}

void ready(Reducer& reducer, size_t parameter) {
  // TODO(2): note that this gradient is ready, and post every bucket whose turn has come.
  //  1. Has this parameter been ready before? Then say so.
  //  2. In which bucket is it, and how many gradients is that bucket still missing?
  //  3. Which bucket is the next to be posted? Could it be more than one now? Or none, although
  //     this parameter's own bucket is complete?
  //  4. Copy the bucket's gradients one after the other into a flat tensor, times this rank's
  //     targets, and post its all_reduce. Keep tensor and Work.
  lab::not_implemented("2", "labs/08_overlap/overlap.cpp");
}

void finish(Reducer& reducer) {
  // TODO(3): from sums under way to means in `reducer.gradients`.
  //  1. Is there a gradient that has not become ready?
  //  2. Wait for the number of targets. What if there is none?
  //  3. Wait for each bucket, divide, and copy its numbers back to where they came from.
  lab::not_implemented("3", "labs/08_overlap/overlap.cpp");
}

double train_step(lab::LlamaStage& model, lab::Optimizer& optimizer,
                  std::span<const lab::TokenBatch> microbatches, const LossFunction& loss,
                  float learning_rate, double max_gradient_norm, Reducer& reducer) {
  // TODO(4): lab 02's step, with messages that travel during the last backward pass.
  //  1. As in lab 02: count this rank's targets, zero the gradients, begin.
  //  2. For every microbatch forward, loss, backward. Before which backward pass must
  //     when_gradient_ready be set, and when must it be emptied?
  //  3. What does a rank without a microbatch do?
  //  4. Finish; then clip and update as in lab 02.
  lab::not_implemented("4", "labs/08_overlap/overlap.cpp");
}

double exposed_seconds(std::span<const int64_t> sizes, std::span<const double> ready_at,
                       std::span<const Bucket> buckets, const Network& network) {
  // TODO(5): follow the buckets through the network.
  //  1. When is a bucket posted? Not before the one that precedes it.
  //  2. When does it start to travel, and when has it arrived?
  lab::not_implemented("5", "labs/08_overlap/overlap.cpp");
}

int64_t choose_cap(std::span<const int64_t> sizes, std::span<const double> ready_at,
                   std::span<const int64_t> caps, const Network& network) {
  // TODO(5): the capacity that leaves the least exposed; of equals the largest.
  lab::not_implemented("5", "labs/08_overlap/overlap.cpp");
}

}  // namespace lab08
