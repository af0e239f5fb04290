// Lab 08 · gradients that travel while the backward pass goes on: solution.
#include "labs/08_overlap/overlap.h"

#include <algorithm>

#include "common/error.h"
#include "common/ops/ops.h"
#include "common/optim/clip.h"

namespace lab08 {
namespace {

size_t bucket_of(const Reducer& reducer, size_t parameter) {
  for (size_t b = 0; b < reducer.buckets.size(); ++b)
    if (std::ranges::count(reducer.buckets[b], parameter) > 0) return b;
  lab::fail("no bucket holds parameter {}", parameter);
}

void post(Reducer& reducer, const Bucket& bucket) {
  int64_t count = 0;
  for (size_t parameter : bucket) count += reducer.gradients[parameter].numel();
  const lab::Tensor flat = lab::Tensor::empty({count}, reducer.gradients[bucket[0]].device());
  int64_t next = 0;
  for (size_t parameter : bucket) {
    const lab::Tensor& gradient = reducer.gradients[parameter];
    flat.rows(next, next + gradient.numel()).copy_from(gradient.view({gradient.numel()}));
    next += gradient.numel();
  }
  lab::scale(flat, static_cast<float>(reducer.targets));
  reducer.flat.push_back(flat);
  reducer.works.push_back(reducer.world.all_reduce_async(flat));
}

}  // namespace

// Task 1
std::vector<Bucket> assign_buckets(std::span<const int64_t> sizes, int64_t cap_bytes,
                                   int64_t first_cap_bytes) {
  std::vector<Bucket> buckets;
  int64_t filled = 0;
  for (size_t parameter = sizes.size(); parameter-- > 0;) {
    const int64_t cap = buckets.size() == 1 ? first_cap_bytes : cap_bytes;
    if (buckets.empty() || filled + sizes[parameter] > cap) {
      buckets.emplace_back();
      filled = 0;
    }
    buckets.back().push_back(parameter);
    filled += sizes[parameter];
  }
  return buckets;
}

// Task 2
void begin(Reducer& reducer, int64_t targets) {
  reducer.targets = targets;
  reducer.is_ready.assign(reducer.gradients.size(), false);
  reducer.missing.clear();
  for (const Bucket& bucket : reducer.buckets) reducer.missing.push_back(bucket.size());
  reducer.flat.clear();
  reducer.works.clear();
  reducer.total = lab::Tensor::from({static_cast<float>(targets)}, {1});
  reducer.counting = reducer.world.all_reduce_async(reducer.total);
}

void ready(Reducer& reducer, size_t parameter) {
  lab::require(!reducer.is_ready.at(parameter),
               "the gradient of parameter {} was ready already in this step", parameter);
  reducer.is_ready[parameter] = true;
  --reducer.missing[bucket_of(reducer, parameter)];
  for (size_t next = reducer.works.size();
       next < reducer.buckets.size() && reducer.missing[next] == 0; ++next)
    post(reducer, reducer.buckets[next]);
}

// Task 3
void finish(Reducer& reducer) {
  for (size_t parameter = 0; parameter < reducer.gradients.size(); ++parameter)
    lab::require(reducer.is_ready.at(parameter),
                 "the gradient of parameter {} did not become ready in this step", parameter);
  reducer.counting->wait();
  const float total = reducer.total.data()[0];
  const float factor = total > 0.0F ? 1.0F / total : 0.0F;
  for (size_t b = 0; b < reducer.buckets.size(); ++b) {
    reducer.works[b].wait();
    const lab::Tensor& flat = reducer.flat[b];
    lab::scale(flat, factor);
    int64_t next = 0;
    for (size_t parameter : reducer.buckets[b]) {
      const lab::Tensor& gradient = reducer.gradients[parameter];
      gradient.view({gradient.numel()}).copy_from(flat.rows(next, next + gradient.numel()));
      next += gradient.numel();
    }
  }
}

// Task 4
double train_step(lab::LlamaStage& model, lab::Optimizer& optimizer,
                  std::span<const lab::TokenBatch> microbatches, const LossFunction& loss,
                  float learning_rate, double max_gradient_norm, Reducer& reducer) {
  int64_t own_targets = 0;
  for (const lab::TokenBatch& batch : microbatches) own_targets += batch.target_count();

  model.zero_gradients();
  begin(reducer, own_targets);
  double own_loss = 0.0;
  for (size_t k = 0; k < microbatches.size(); ++k) {
    const lab::Tensor logits = model.forward(microbatches[k]);
    own_loss += loss(logits, microbatches[k], own_targets);
    if (k + 1 == microbatches.size())
      model.when_gradient_ready([&](size_t parameter) { ready(reducer, parameter); });
    model.backward(logits);
  }
  model.when_gradient_ready({});
  if (microbatches.empty())
    for (size_t parameter = reducer.gradients.size(); parameter-- > 0;) ready(reducer, parameter);
  finish(reducer);
  if (max_gradient_norm > 0.0) lab::clip_gradients(model, max_gradient_norm);
  optimizer.step(model.parameters(), model.gradients(), learning_rate);
  return own_loss;
}

// Task 5
double exposed_seconds(std::span<const int64_t> sizes, std::span<const double> ready_at,
                       std::span<const Bucket> buckets, const Network& network) {
  double posted = 0.0;
  double arrived = 0.0;
  for (const Bucket& bucket : buckets) {
    int64_t bytes = 0;
    for (size_t parameter : bucket) {
      bytes += sizes[parameter];
      posted = std::max(posted, ready_at[parameter]);
    }
    arrived = std::max(arrived, posted) + network.seconds(bytes);
  }
  return arrived - posted;
}

int64_t choose_cap(std::span<const int64_t> sizes, std::span<const double> ready_at,
                   std::span<const int64_t> caps, const Network& network) {
  int64_t best = -1;
  double least = 0.0;
  for (const int64_t cap : caps) {
    const std::vector<Bucket> buckets = assign_buckets(sizes, cap, cap);
    const double exposed = exposed_seconds(sizes, ready_at, buckets, network);
    if (best < 0 || exposed < least || (exposed == least && cap > best)) {
      best = cap;
      least = exposed;
    }
  }
  return best;
}

}  // namespace lab08
