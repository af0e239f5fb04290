// The rank program of lab 02: calls an implementation's functions on what the verdict sends.
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "common/grading/rank_main.h"
#include "labs/01_single_gpu/single_gpu.h"
#include "labs/02_gradient_allreduce/gradient_allreduce.h"
#include "tests/labs/02_gradient_allreduce/step_log.h"
#include "tests/labs/02_gradient_allreduce/tiny_model.h"

namespace lab02 {
namespace {

using lab::ProcessGroup;
using lab::Tensor;
using lab::TokenBatch;
using lab::grading::Parcel;

/// Names of the model's tensors, a line each, and where they begin in the flat buffers.
void describe(const lab::LlamaStage& model, Parcel& result) {
  std::string names;
  std::vector<double> begins;
  for (const lab::Parameter& parameter : model.named_parameters()) {
    names += parameter.name + "\n";
    begins.push_back(static_cast<double>(parameter.value.data() - model.parameters().data()));
  }
  result.set_text("names", names);
  result.set("begins", begins);
}

/// Task 1, on a model that each rank draws from its own `seed`.
Parcel run_broadcast(const Parcel& input, ProcessGroup& world) {
  lab::LlamaStage model = tiny_model(static_cast<uint64_t>(input.number("seed")));
  Parcel result;
  describe(model, result);
  result.set("before", model.parameters().clone());
  broadcast_parameters(model, world);
  result.set("weights", model.parameters().clone());
  return result;
}

/// Task 2 for every rank of `world_size`, twice.
Parcel run_shards(const Parcel& input) {
  std::vector<int64_t> order;
  for (double sequence : input.numbers("order")) order.push_back(static_cast<int64_t>(sequence));
  const int world_size = static_cast<int>(input.number("world_size"));
  Parcel result;
  for (const std::string call : {"share", "again"})
    for (int rank = 0; rank < world_size; ++rank) {
      const std::vector<int64_t> share = shard(order, rank, world_size);
      result.set(call + std::to_string(rank), std::vector<double>(share.begin(), share.end()));
    }
  return result;
}

/// Task 3 on `tensors` tensors, which lie in one block of memory with a fence around each.
Parcel run_average_gradients(const Parcel& input, ProcessGroup& world) {
  constexpr float kFence = 12345.0F;
  constexpr int64_t kFenceLength = 3;
  const int count = static_cast<int>(input.number("tensors"));
  int64_t size = kFenceLength;
  for (int k = 0; k < count; ++k)
    size += input.tensor("tensor" + std::to_string(k)).numel() + kFenceLength;
  const Tensor block = Tensor::empty({size});
  block.fill(kFence);

  std::vector<Tensor> gradients;
  int64_t begin = kFenceLength;
  for (int k = 0; k < count; ++k) {
    const Tensor& values = input.tensor("tensor" + std::to_string(k));
    gradients.push_back(block.rows(begin, begin + values.numel()).view(values.shape()));
    gradients.back().copy_from(values);
    begin += values.numel() + kFenceLength;
  }
  average_gradients(gradients, static_cast<int64_t>(input.number("targets")), world);

  Parcel result;
  bool fence_broken = false;
  const float* next = block.data();
  const auto check_fence = [&] {
    for (int64_t i = 0; i < kFenceLength; ++i) fence_broken = fence_broken || *next++ != kFence;
  };
  check_fence();
  for (int k = 0; k < count; ++k) {
    const Tensor copy = Tensor::empty(gradients[static_cast<size_t>(k)].shape());
    std::copy_n(next, copy.numel(), copy.data());
    result.set("tensor" + std::to_string(k), copy);
    next += copy.numel();
    check_fence();
  }
  result.set("fence_broken", fence_broken ? 1.0 : 0.0);
  return result;
}

std::vector<TokenBatch> microbatches(const Parcel& input) {
  std::vector<TokenBatch> batches;
  for (int k = 0; k < static_cast<int>(input.number("microbatches")); ++k)
    batches.push_back(input.batch("microbatch" + std::to_string(k)));
  return batches;
}

std::unique_ptr<lab::Optimizer> make_optimizer(const std::string& name, int64_t size) {
  if (name == "sgd") return std::make_unique<lab::Sgd>();
  return std::make_unique<lab::Adam>(size, lab::AdamConfig{}, lab01::adam_update);
}

/// Task 4: `steps` training steps on the same microbatches, all of them on record.
Parcel run_train_step(const Parcel& input, ProcessGroup& world) {
  lab::LlamaStage model = tiny_model();
  model.gradients().fill(static_cast<float>(input.number("leftover")));
  const std::vector<TokenBatch> batches = microbatches(input);
  RecordingOptimizer optimizer(make_optimizer(input.text("optimizer"), model.parameters().numel()));
  Parcel result;
  for (int step = 0; step < static_cast<int>(input.number("steps")); ++step) {
    const std::string suffix = std::to_string(step);
    optimizer.clear();
    step_log() = {};
    result.set("loss" + suffix, train_step(model, optimizer, batches, recording_loss,
                                           static_cast<float>(input.number("learning_rate")),
                                           input.number("max_norm"), world));
    result.set("totals" + suffix, step_log().totals);
    result.set_text("events" + suffix, step_log().events);
    result.set("updates" + suffix, static_cast<double>(optimizer.updates().size()));
    if (!optimizer.updates().empty()) {
      result.set("gradients" + suffix, optimizer.updates()[0].gradients);
      result.set("rate" + suffix, optimizer.updates()[0].learning_rate);
    }
    result.set("weights" + suffix, model.parameters().clone());
    for (const lab::Optimizer::State& state : optimizer.state())
      result.set(state.name + suffix, state.value.clone());
  }
  return result;
}

/// The oracle of task 4, without any of the lab's functions: loss and gradients of each microbatch,
/// summed over its targets, and the initial weights.
Parcel run_microbatch_gradients(const Parcel& input) {
  lab::LlamaStage model = tiny_model();
  Parcel result;
  describe(model, result);
  result.set("weights", model.parameters().clone());
  result.set("parameters", static_cast<double>(model.parameter_count()));
  std::vector<double> losses;
  for (const TokenBatch& batch : microbatches(input)) {
    model.zero_gradients();
    const Tensor logits = model.forward(batch);
    const double loss = lab01::causal_lm_loss(logits, batch, 1);
    model.backward(logits);
    result.set("gradients" + std::to_string(losses.size()), model.gradients().clone());
    losses.push_back(loss);
  }
  result.set("losses", losses);
  return result;
}

/// Task 5.
Parcel run_average_loss(const Parcel& input, ProcessGroup& world) {
  Parcel result;
  result.set("mean", average_loss(input.number("loss"),
                                  static_cast<int64_t>(input.number("targets")), world));
  return result;
}

}  // namespace
}  // namespace lab02

int main(int argc, char** argv) {
  return lab::grading::rank_main(
      argc, argv,
      {.alone = {{"shards", lab02::run_shards},
                 {"microbatch_gradients", lab02::run_microbatch_gradients}},
       .group = {{"broadcast", lab02::run_broadcast},
                 {"average_gradients", lab02::run_average_gradients},
                 {"train_step", lab02::run_train_step},
                 {"average_loss", lab02::run_average_loss}}});
}
