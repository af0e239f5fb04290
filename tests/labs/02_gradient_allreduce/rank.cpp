// The rank program of lab 02: the contract's functions, and the scenarios that call them.
#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "common/error.h"
#include "labs/02_gradient_allreduce/gradient_allreduce.h"
#include "tests/grading/implementation.h"
#include "tests/grading/rank_main.h"
#include "tests/grading/training_rank.h"

using lab::ProcessGroup;
using lab::Tensor;
using lab::grading::own;
using lab::grading::Parcel;
using lab::grading::record_event;

namespace lab02 {
namespace given_3 {

/// In the place of the student's for task 4. It refuses what no averaging can answer.
LAB_GIVEN void average_gradients(std::span<const Tensor> gradients, int64_t targets,
                                 ProcessGroup& world) {
  lab::require(targets >= 0, "average_gradients was called with {} targets", targets);
  lab::require(!gradients.empty(), "average_gradients was called without a tensor");
  const Tensor total = Tensor::from({static_cast<float>(targets)}, {1});
  world.all_reduce(total);
  const double all = total.data()[0];
  const double share = all > 0 ? static_cast<double>(targets) / all : 0;
  std::vector<float> numbers;
  for (const Tensor& tensor : gradients)
    for (float value : tensor.values()) numbers.push_back(static_cast<float>(share * value));
  const Tensor flat = Tensor::from(numbers, {static_cast<int64_t>(numbers.size())});
  world.all_reduce(flat);
  const float* next = flat.data();
  for (const Tensor& tensor : gradients)
    for (float& value : tensor.values()) value = *next++;
}

}  // namespace given_3

// The contract's functions.

void broadcast_parameters(lab::LlamaStage& model, ProcessGroup& world) {
  return own(&broadcast_parameters)(model, world);
}

std::vector<int64_t> shard(std::span<const int64_t> order, int rank, int world_size) {
  return own(&shard)(order, rank, world_size);
}

void average_gradients(std::span<const Tensor> gradients, int64_t targets, ProcessGroup& world) {
  record_event("average");
  if (lab::grading::is_given("3")) return given_3::average_gradients(gradients, targets, world);
  return own(&average_gradients)(gradients, targets, world);
}

double train_step(lab::LlamaStage& model, lab::Optimizer& optimizer,
                  std::span<const lab::TokenBatch> microbatches, const LossFunction& loss,
                  float learning_rate, double max_gradient_norm, ProcessGroup& world) {
  return own(&train_step)(model, optimizer, microbatches, loss, learning_rate, max_gradient_norm,
                          world);
}

double average_loss(double loss, int64_t targets, ProcessGroup& world) {
  return own(&average_loss)(loss, targets, world);
}

namespace {

/// Task 1: every rank has drawn different weights, for every tensor, or only for the last; or rank
/// 0 alone has weights that are numbers, a -0.0 among them.
Parcel run_broadcast(const Parcel& input, ProcessGroup& world) {
  lab::LlamaStage model(lab::grading::model_of(input), lab::grading::span_of(input),
                        lab::Device::kCpu, static_cast<uint64_t>(input.number("seed")));
  const std::string unlike = input.text("unlike");
  for (const lab::Parameter& parameter : model.named_parameters()) {
    const std::span<float> weights = parameter.value.values();
    if (unlike == "last" && parameter.name != model.named_parameters().back().name) continue;
    if (unlike == "infinite" && world.rank() > 0)
      parameter.value.fill(std::numeric_limits<float>::infinity());
    else if (unlike == "order")
      std::rotate(weights.begin(), weights.begin() + world.rank() % std::ssize(weights),
                  weights.end());
    else
      for (float& weight : weights) weight += 0.01F * static_cast<float>(world.rank() + 1);
  }
  // It is equal to 0.0, and yet another number.
  if (unlike == "infinite" && world.rank() == 0)
    model.named_parameters().front().value.values()[0] = -0.0F;
  Parcel result;
  std::string names;
  std::vector<double> sizes;
  for (const lab::Parameter& parameter : model.named_parameters()) {
    names += parameter.name + "\n";
    sizes.push_back(static_cast<double>(parameter.value.numel()));
  }
  result.set_text("names", names);
  result.set("sizes", sizes);
  result.set("before", lab::grading::packed(model, model.parameters()));
  broadcast_parameters(model, world);
  result.set("weights", lab::grading::packed(model, model.parameters()));
  return result;
}

/// Task 2 for all ranks of a job, and once more in another order. The orders of all calls lie in
/// the same memory, as those of a trainer's epochs do.
Parcel run_shards(const Parcel& input) {
  static std::vector<int64_t> order;
  const std::vector<double> sequences = input.numbers("order");
  order.assign(sequences.begin(), sequences.end());
  const int world_size = static_cast<int>(input.number("world_size"));
  Parcel result;
  const auto note = [&](const std::string& entry, int rank) {
    const std::vector<int64_t> share = shard(order, rank, world_size);
    result.set(entry + std::to_string(rank), std::vector<double>(share.begin(), share.end()));
  };
  for (int rank = 0; rank < world_size; ++rank) note("share", rank);
  for (int rank = world_size - 1; rank >= 0; --rank) note("again", rank);
  return result;
}

/// Task 3 on tensors in one block of memory, with a fence around each; on every other rank the last
/// one comes first.
Parcel run_average_gradients(const Parcel& input, ProcessGroup& world) {
  constexpr float kFence = 12345.0F;
  constexpr int64_t kFenceLength = 3;
  const int count = static_cast<int>(input.number("tensors"));
  const auto entry = [](int k) { return "tensor" + std::to_string(k); };
  int64_t size = kFenceLength;
  for (int k = 0; k < count; ++k) size += input.tensor(entry(k)).numel() + kFenceLength;
  const Tensor block = Tensor::empty({size});
  block.fill(kFence);
  std::vector<Tensor> gradients(static_cast<size_t>(count));
  const auto in_memory = [&](int k) { return world.rank() % 2 == 0 ? k : count - 1 - k; };
  int64_t begin = kFenceLength;
  for (int i = 0; i < count; ++i) {
    const Tensor& values = input.tensor(entry(in_memory(i)));
    Tensor& gradient = gradients[static_cast<size_t>(in_memory(i))];
    gradient = block.rows(begin, begin + values.numel()).view(values.shape());
    gradient.copy_from(values);
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
  for (int i = 0; i < count; ++i) {
    const int k = in_memory(i);
    const Tensor copy = Tensor::empty(input.tensor(entry(k)).shape());
    std::copy_n(next, copy.numel(), copy.data());
    result.set(entry(k), copy);
    next += copy.numel();
    check_fence();
  }
  result.set("fence_broken", fence_broken ? 1.0 : 0.0);
  return result;
}

/// Task 4.
Parcel run_train_step(const Parcel& input, ProcessGroup& world) {
  lab::grading::Passes passes;  // of the step under way
  return lab::grading::record_steps(input, &world, [&](const lab::grading::StepArguments& a) {
    passes = {};
    a.stage.observe_passes([&, &stage = a.stage](lab::LlamaStage::Pass pass, int, bool begins) {
      passes.note(stage, pass, begins);
    });
    const double loss = train_step(a.stage, a.optimizer, a.microbatches, a.loss, a.learning_rate,
                                   a.max_norm, world);
    passes.expect_all_backward();
    return loss;
  });
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
  return lab::grading::rank_main(argc, argv,
                                 {.alone = {{"shards", lab02::run_shards}},
                                  .group = {{"broadcast", lab02::run_broadcast},
                                            {"average_gradients", lab02::run_average_gradients},
                                            {"train_step", lab02::run_train_step},
                                            {"average_loss", lab02::run_average_loss}}});
}
