#include "tests/labs/09_sharded/rank_steps.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "common/error.h"
#include "common/tensor/memory_account.h"
#include "labs/09_sharded/sharded.h"
#include "tests/grading/operations.h"
#include "tests/grading/reference.h"

namespace lab09 {
namespace {

using lab::LlamaConfig;
using lab::LlamaStage;
using lab::MemoryKind;
using lab::ProcessGroup;
using lab::Tensor;
using lab::grading::Parcel;

LlamaStage bound_model(const LlamaConfig& config, uint64_t seed) {
  return {config, lab::StageSpan::whole(config), lab::Device::kCpu, seed,
          lab::WeightMemory::kBound};
}

/// The reference's optimizer for a shard; keeps what came in.
class ShardOptimizer final : public lab::Optimizer {
 public:
  ShardOptimizer(const std::string& name, int64_t size) : size_(size) {
    const lab::MemoryOf kind(MemoryKind::kOptimizer);
    inner_ = lab::grading::reference_optimizer(name, size);
  }

  void step(const Tensor& parameters, const Tensor& gradients, float learning_rate) override {
    if (updates++ == 0) {
      const lab::CountMemory nobody(nullptr);
      gradient = gradients.clone();
      rate = learning_rate;
    }
    lab::require(parameters.numel() == size_ && gradients.numel() == size_,
                 "the optimizer of a shard of {} elements, padding included, is given {} weights "
                 "and {} gradients: give it own_values and own_gradient",
                 size_, parameters.numel(), gradients.numel());
    inner_->set_steps(steps_);  // which may have been set from outside
    inner_->step(parameters, gradients, learning_rate);
    ++steps_;
  }

  int updates = 0;
  Tensor gradient;
  float rate = 0;

 private:
  int64_t size_;
  std::unique_ptr<lab::Optimizer> inner_;
};

/// The whole of a part from everybody's shards.
Tensor whole(const Part& part, const Tensor& own, ProcessGroup& group) {
  const Tensor all = Tensor::empty({own.numel() * group.size()});
  group.all_gather(all, own);
  return all.rows(0, part.size);
}

/// One rank's model in shards, as long as a scenario takes.
class Job {
 public:
  Job(const Parcel& input, ProcessGroup& world)
      : leftover_(static_cast<float>(input.number("leftover"))),
        test_(world.split(0, world.rank(), lab::grading::kBetweenCalls)),
        counting_(std::in_place, account_),
        model_(bound_model(lab::grading::model_of(input),
                           static_cast<uint64_t>(input.number("seed")))),
        sharded_(
            make_sharded(model_, world, static_cast<int>(input.number("stage")), [&](int64_t size) {
              auto one = std::make_unique<ShardOptimizer>(input.text("optimizer"), size);
              optimizers_.push_back(one.get());
              return one;
            })) {
    attach(sharded_);
    model_.observe_passes([this](LlamaStage::Pass pass, int, bool begins) {
      passes_.note(model_, pass, begins);
      if (pass == LlamaStage::Pass::kBackward && begins && passes_.backward() == 1) expect_zeros();
    });
    counting_.reset();
  }

  double step(const lab::grading::StepArguments& a, int number, Parcel& result) {
    for (ShardOptimizer* optimizer : optimizers_) optimizer->updates = 0;
    leave_gradients();
    double loss = 0;
    passes_ = {};
    {
      const lab::CountMemory counting(account_);
      account_->reset_peaks();
      loss = train_step(
          sharded_, a.microbatches,
          [loss = a.loss](const Tensor& logits, const lab::TokenBatch& batch, int64_t total) {
            const lab::CountMemory nobody(nullptr);
            return loss(logits, batch, total);
          },
          a.learning_rate, a.max_norm);
    }
    passes_.expect_all_backward();
    std::vector<double> memory;
    for (size_t kind = 0; kind < lab::kMemoryKinds; ++kind)
      memory.push_back(static_cast<double>(account_->peak(static_cast<MemoryKind>(kind))));
    memory.push_back(static_cast<double>(account_->peak_without_activations()));
    memory.push_back(
        static_cast<double>(account_->bytes() - account_->bytes(MemoryKind::kActivations)));
    result.set(fmt::format("memory.{}", number), memory);
    result.set(fmt::format("in_flight.{}", number), static_cast<double>(model_.activation_bytes()));
    note_update(a);
    return loss;
  }

  std::vector<double> part_sizes() const {
    std::vector<double> sizes;
    for (const Part& part : sharded_.parts) sizes.push_back(static_cast<double>(part.size));
    return sizes;
  }

 private:
  void leave_gradients() const {
    if (leftover_ == 0) return;
    if (sharded_.stage == 1)
      for (const Part& part : sharded_.parts) part.gradient.fill(leftover_);  // padding, too
    if (sharded_.stage > 1)
      for (const Part& part : sharded_.parts) part.own_gradient.fill(leftover_);
  }

  /// What was there before the step does not count.
  void expect_zeros() const {
    const auto zero = [](const Tensor& tensor) {
      return std::ranges::all_of(tensor.values(), [](float value) { return value == 0; });
    };
    for (size_t p = 0; p < sharded_.parts.size(); ++p) {
      const Part& part = sharded_.parts[p];
      lab::require(zero(part.own_gradient) && (sharded_.stage > 1 || zero(part.gradient)),
                   "when the first backward pass of a step begins, gradients of {} are left from "
                   "before: zero own_gradient, and in stage 1 all of `gradient`",
                   model_.part_name(p));
    }
  }

  /// Hands the gradients of all shards to the recorded optimizer, and the new weights to its model.
  void note_update(const lab::grading::StepArguments& a) {
    const int updates = optimizers_.front()->updates;
    for (size_t p = 0; p < optimizers_.size(); ++p) {
      const ShardOptimizer& one = *optimizers_[p];
      lab::require(one.updates == updates,
                   "the optimizer of {} made {} steps, that of {} {}: one step of training is one "
                   "step of every part's optimizer",
                   model_.part_name(p), one.updates, model_.part_name(0), updates);
      lab::require(one.updates == 0 || one.rate == optimizers_.front()->rate,
                   "the optimizer of {} is given the learning rate {}, that of {} {}",
                   model_.part_name(p), one.rate, model_.part_name(0), optimizers_.front()->rate);
    }
    const Tensor gradients = Tensor::zeros(a.stage.parameters().shape());
    const Tensor weights = Tensor::zeros(a.stage.parameters().shape());
    int64_t first = 0;
    for (size_t p = 0; p < optimizers_.size(); ++p) {
      const Part& part = sharded_.parts[p];
      const Tensor got = updates > 0 ? optimizers_[p]->gradient : part.own_gradient;
      gradients.rows(first, first + part.size).copy_from(whole(part, got, test_));
      const Tensor values = sharded_.stage == 3 ? whole(part, part.own_values, test_)
                                                : part.values.rows(0, part.size);
      weights.rows(first, first + part.size).copy_from(values);
      first += part.size;
    }
    for (int k = 0; k < updates; ++k)
      a.optimizer.step(a.stage.parameters(), gradients, optimizers_.front()->rate);
    a.stage.parameters().copy_from(weights);
  }

  float leftover_;  // in every gradient before a step
  ProcessGroup test_;
  std::shared_ptr<lab::MemoryAccount> account_ = std::make_shared<lab::MemoryAccount>();
  std::optional<lab::CountMemory> counting_;
  std::vector<ShardOptimizer*> optimizers_;
  lab::grading::Passes passes_;  // of the step under way
  LlamaStage model_;
  Sharded sharded_;
};

/// A model with five parts, for gradients that are made up.
LlamaConfig five_parts() {
  return {.vocab_size = 7,
          .dim = 4,
          .heads = 1,
          .kv_heads = 1,
          .layers = 3,
          .hidden_dim = 5,
          .context = 4};
}

struct FiveParts {
  FiveParts(const Parcel& input, ProcessGroup& world)
      : model(bound_model(five_parts(), 1)),
        sharded(make_sharded(model, world, static_cast<int>(input.number("stage")),
                             [](int64_t) { return std::make_unique<lab::Sgd>(); })) {}

  LlamaStage model;
  Sharded sharded;
};

/// A pass of another model that ends early, with an error say: what it was about to use must not
/// be taken for gathered in the next one.
void end_a_pass_early(const Parcel& input, ProcessGroup& world) {
  FiveParts other(input, world);
  open_values(other.sharded, {.part = 1, .next = 0});
  close_values(other.sharded, 1);
  other.sharded.parts[0].gathering->wait();
}

}  // namespace

Parcel run_reduce(const Parcel& input, ProcessGroup& world) {
  FiveParts job(input, world);
  Parcel result;
  for (size_t p = 0; p < job.sharded.parts.size(); ++p)
    job.sharded.parts[p].own_gradient.copy_from(input.tensor(fmt::format("earlier.{}", p)));
  for (int time = 0; time < static_cast<int>(input.number("times")); ++time)
    for (size_t p = job.sharded.parts.size(); p-- > 0;) {
      Part& part = job.sharded.parts[p];
      const Tensor& gradient = input.tensor(fmt::format("gradient.{}", p));
      if (job.sharded.stage > 1) part.gradient = Tensor::zeros({padded(part.size, world.size())});
      part.gradient.fill(0);  // padding, too
      part.gradient.rows(0, part.size).copy_from(gradient.rows(0, part.size));
      reduce_gradient(job.sharded, p);
      result.set(fmt::format("own.{}", p), part.own_gradient.clone());
      if (job.sharded.stage > 1) part.gradient = {};
    }
  return result;
}

Parcel run_clip(const Parcel& input, ProcessGroup& world) {
  FiveParts job(input, world);
  Parcel result;
  for (size_t p = 0; p < job.sharded.parts.size(); ++p) {
    const Part& part = job.sharded.parts[p];
    if (job.sharded.stage == 1) part.gradient.rows(0, part.size).fill(kBesideTheShard);
    part.own_gradient.copy_from(input.tensor(fmt::format("own.{}", p)));
  }
  result.set("norm", clip_gradients(job.sharded, input.number("max_norm")));
  for (size_t p = 0; p < job.sharded.parts.size(); ++p)
    result.set(fmt::format("own.{}", p), job.sharded.parts[p].own_gradient.clone());
  return result;
}

Parcel run_steps(const Parcel& input, ProcessGroup& world) {
  if (input.number("stage") == 3) end_a_pass_early(input, world);
  Job job(input, world);
  Parcel more;
  int number = 0;
  Parcel result = record_steps(input, &world, [&](const lab::grading::StepArguments& a) {
    return job.step(a, number++, more);
  });
  for (int step = 0; step < number; ++step) {
    result.set(fmt::format("memory.{}", step), more.numbers(fmt::format("memory.{}", step)));
    result.set(fmt::format("in_flight.{}", step), more.numbers(fmt::format("in_flight.{}", step)));
  }
  result.set("part_sizes", job.part_sizes());
  return result;
}

}  // namespace lab09
