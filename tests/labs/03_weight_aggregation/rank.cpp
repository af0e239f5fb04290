// The rank program of lab 03: the contract's functions, and the scenarios that call them.
#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "common/error.h"
#include "labs/03_weight_aggregation/weight_aggregation.h"
#include "tests/grading/implementation.h"
#include "tests/grading/rank_main.h"
#include "tests/grading/training_case.h"
#include "tests/grading/training_rank.h"

using lab::ProcessGroup;
using lab::Tensor;
using lab::grading::is_given;
using lab::grading::own;
using lab::grading::Parcel;

namespace lab03 {
namespace {

// In the place of the student's for tasks 3 and 4.

void correct_average_weights(std::span<const lab::Parameter> parameters, double share,
                             ProcessGroup& world) {
  std::vector<float> numbers;
  for (const lab::Parameter& parameter : parameters)
    for (const float weight : parameter.value.values())
      numbers.push_back(static_cast<float>(share * weight));
  const Tensor flat = Tensor::from(numbers, {static_cast<int64_t>(numbers.size())});
  world.all_reduce(flat);
  const float* next = flat.data();
  for (const lab::Parameter& parameter : parameters)
    for (float& weight : parameter.value.values()) weight = *next++;
}

/// Refuses what it cannot answer.
bool correct_aggregation_due(int64_t step, int64_t every) {
  lab::require(every >= 1 && step >= 1,
               "aggregation_due was called with step {} and every {}: both count from 1; are they "
               "passed on in this order, and unchanged?",
               step, every);
  return step % every == 0;
}

}  // namespace

// The contract's functions.

double share_of(double examples, ProcessGroup& world) { return own(&share_of)(examples, world); }

void average_weights(std::span<const lab::Parameter> parameters, double share,
                     ProcessGroup& world) {
  lab::grading::record_event("average");
  if (is_given("1b")) return correct_average_weights(parameters, share, world);
  return own(&average_weights)(parameters, share, world);
}

bool aggregation_due(int64_t step, int64_t every) {
  return is_given("2") ? correct_aggregation_due(step, every) : own(&aggregation_due)(step, every);
}

double train_step(lab::LlamaStage& model, lab::Optimizer& optimizer,
                  std::span<const lab::TokenBatch> microbatches, lab01::LossFunction loss,
                  float learning_rate, double max_gradient_norm, int64_t step,
                  const Aggregation& aggregation, ProcessGroup& world) {
  return own(&train_step)(model, optimizer, microbatches, loss, learning_rate, max_gradient_norm,
                          step, aggregation, world);
}

double drift(std::span<const lab::Parameter> parameters, double share, ProcessGroup& world) {
  return own(&drift)(parameters, share, world);
}

namespace {

/// Task 1a.
Parcel run_share_of(const Parcel& input, ProcessGroup& world) {
  Parcel result;
  result.set("share", share_of(input.number("examples"), world));
  return result;
}

bool same_bits(const Tensor& a, const Tensor& b) {
  return a.numel() == 0 || std::memcmp(a.data(), b.data(), a.bytes()) == 0;
}

/// Parameters as a model has them: views of one block of memory. There is a fence around each.
class Parameters {
 public:
  explicit Parameters(const Parcel& input) {
    const auto count = static_cast<size_t>(input.number("tensors"));
    int64_t size = kFenceLength;
    for (size_t k = 0; k < count; ++k) {
      before_.push_back(input.tensor("tensor" + std::to_string(k)));
      size += before_.back().numel() + kFenceLength;
    }
    block_ = Tensor::empty({size});
    block_.fill(kFence);
    int64_t begin = kFenceLength;
    for (size_t k = 0; k < count; ++k) {
      const Tensor& values = before_[k];
      const Tensor view = block_.rows(begin, begin + values.numel()).view(values.shape());
      view.copy_from(values);
      list_.push_back({input.text("name" + std::to_string(k)), view, gradient(k)});
      begin += values.numel() + kFenceLength;
    }
  }

  std::span<const lab::Parameter> list() const { return list_; }

  /// What became of them. Judged is the memory, whatever the handles point to by now.
  void write(bool with_weights, Parcel& result) const {
    bool weights_changed = false;
    bool gradients_changed = false;
    const float* next = block_.data();
    bool fence_broken = false;
    const auto pass_fence = [&] {
      for (int64_t i = 0; i < kFenceLength; ++i) fence_broken = fence_broken || *next++ != kFence;
    };
    std::vector<float> weights;
    pass_fence();
    for (size_t k = 0; k < before_.size(); ++k) {
      const auto size = static_cast<size_t>(before_[k].numel());
      const Tensor now = Tensor::from({next, size}, {before_[k].numel()});
      weights_changed = weights_changed || !same_bits(now, before_[k]);
      gradients_changed = gradients_changed || !same_bits(list_[k].gradient, gradient(k));
      if (with_weights) weights.insert(weights.end(), next, next + size);
      next += size;
      pass_fence();
    }
    result.set("weights_changed", weights_changed ? 1.0 : 0.0);
    result.set("gradients_changed", gradients_changed ? 1.0 : 0.0);
    result.set("fence_broken", fence_broken ? 1.0 : 0.0);
    result.set("weights", Tensor::from(weights, {static_cast<int64_t>(weights.size())}));
  }

 private:
  static constexpr float kFence = 12345.0F;
  static constexpr int64_t kFenceLength = 3;

  Tensor gradient(size_t k) const {
    return lab::grading::draw_tensor(before_[k].shape(), 1.0, 1 + k);
  }

  std::vector<Tensor> before_;
  Tensor block_;
  std::vector<lab::Parameter> list_;
};

/// Task 1b.
Parcel run_average_weights(const Parcel& input, ProcessGroup& world) {
  const Parameters parameters(input);
  average_weights(parameters.list(), input.number("share"), world);
  Parcel result;
  parameters.write(/*with_weights=*/true, result);
  return result;
}

/// Task 2: 1 for every pair of "steps" and "every" for which an average is due.
Parcel run_aggregation_due(const Parcel& input) {
  const std::vector<double> steps = input.numbers("steps");
  const std::vector<double> every = input.numbers("every");
  std::vector<double> due;
  for (size_t i = 0; i < steps.size(); ++i)
    due.push_back(aggregation_due(static_cast<int64_t>(steps[i]), static_cast<int64_t>(every[i])));
  Parcel result;
  result.set("due", due);
  return result;
}

/// Task 3. "every" has one number for each step.
Parcel run_train_step(const Parcel& input, ProcessGroup& world) {
  const std::vector<double> every = input.numbers("every");
  const auto first_step = static_cast<int64_t>(input.number("first_step"));
  double weight_bytes = 0;  // with the gaps between the tensors
  Parcel result =
      lab::grading::record_steps(input, &world, [&](const lab::grading::StepArguments& a) {
        weight_bytes = static_cast<double>(a.stage.parameters().bytes());
        const Aggregation aggregation{
            .every = static_cast<int64_t>(every.at(static_cast<size_t>(a.step - 1))),
            .share = input.number("share")};
        return train_step(a.stage, a.optimizer, a.microbatches, lab::grading::recorded_loss,
                          a.learning_rate, a.max_norm, first_step + a.step - 1, aggregation, world);
      });
  result.set("weight_bytes", weight_bytes);
  return result;
}

/// Task 4.
Parcel run_drift(const Parcel& input, ProcessGroup& world) {
  const Parameters parameters(input);
  Parcel result;
  result.set("drift", drift(parameters.list(), input.number("share"), world));
  parameters.write(/*with_weights=*/false, result);
  return result;
}

}  // namespace
}  // namespace lab03

int main(int argc, char** argv) {
  return lab::grading::rank_main(argc, argv,
                                 {.alone = {{"aggregation_due", lab03::run_aggregation_due}},
                                  .group = {{"share_of", lab03::run_share_of},
                                            {"average_weights", lab03::run_average_weights},
                                            {"train_step", lab03::run_train_step},
                                            {"drift", lab03::run_drift}}});
}
