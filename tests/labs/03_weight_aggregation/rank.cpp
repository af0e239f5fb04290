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

/// Of the model in the latest step. Simulated ranks are threads.
struct StepTensors {
  Tensor weights;
  Tensor gradients;
};
StepTensors& of_the_step() {
  thread_local StepTensors tensors;
  return tensors;
}

/// Their memory may also carry the weights.
bool are_gradients(const Tensor& tensor) {
  return tensor.numel() > 0 && tensor.data() == of_the_step().gradients.data() &&
         !std::ranges::equal(tensor.values(), of_the_step().weights.values());
}

}  // namespace

// In the place of the student's for tasks 3 and 4. They refuse what they cannot answer.

namespace given_1b {

LAB_GIVEN void average_weights(const Tensor& weights, double share, ProcessGroup& world) {
  lab::require(!are_gradients(weights),
               "average_weights was given the gradients, which lab 02 averages: here "
               "model.parameters() are averaged, after the local step");
  for (float& weight : weights.values()) weight = static_cast<float>(share * weight);
  world.all_reduce(weights);
}

}  // namespace given_1b

namespace given_2 {

LAB_GIVEN bool aggregation_due(int64_t step, int64_t every) {
  lab::require(every >= 1 && step >= 1,
               "aggregation_due was called with step {} and every {}: both count from 1; are they "
               "passed on in this order, and unchanged?",
               step, every);
  return step % every == 0;
}

}  // namespace given_2

// The contract's functions.

double share_of(double examples, ProcessGroup& world) { return own(&share_of)(examples, world); }

void average_weights(const Tensor& weights, double share, ProcessGroup& world) {
  lab::grading::record_event("average");
  if (is_given("1b")) return given_1b::average_weights(weights, share, world);
  return own(&average_weights)(weights, share, world);
}

bool aggregation_due(int64_t step, int64_t every) {
  return is_given("2") ? given_2::aggregation_due(step, every) : own(&aggregation_due)(step, every);
}

double train_step(lab::LlamaStage& model, lab::Optimizer& optimizer,
                  std::span<const lab::TokenBatch> microbatches, const lab::LossFunction& loss,
                  float learning_rate, double max_gradient_norm, int64_t step,
                  const Aggregation& aggregation, ProcessGroup& world) {
  return own(&train_step)(model, optimizer, microbatches, loss, learning_rate, max_gradient_norm,
                          step, aggregation, world);
}

double drift(const Tensor& weights, double share, ProcessGroup& world) {
  return own(&drift)(weights, share, world);
}

namespace {

/// Task 1a.
Parcel run_share_of(const Parcel& input, ProcessGroup& world) {
  Parcel result;
  result.set("share", share_of(input.number("examples"), world));
  return result;
}

/// Weights as a model has them: a view of a larger block of memory. There is a fence around them.
class Weights {
 public:
  explicit Weights(const Parcel& input) : before_(input.tensor("weights")) {
    const int64_t size = before_.numel();
    block_ = Tensor::empty({size + 2 * kFenceLength});
    block_.fill(kFence);
    view_ = block_.rows(kFenceLength, kFenceLength + size).view(before_.shape());
    view_.copy_from(before_);
  }

  const Tensor& view() const { return view_; }

  /// What became of them. Judged is the memory, whatever handles point to by now.
  void write(bool with_weights, Parcel& result) const {
    const auto size = static_cast<size_t>(before_.numel());
    const std::span<const float> all = block_.values();
    const std::span<const float> now = all.subspan(kFenceLength, size);
    const auto is_fence = [](float number) { return number == kFence; };
    const bool whole = std::ranges::all_of(all.first(kFenceLength), is_fence) &&
                       std::ranges::all_of(all.last(kFenceLength), is_fence);
    const bool same = std::memcmp(now.data(), before_.values().data(), now.size_bytes()) == 0;
    result.set("weights_changed", same ? 0.0 : 1.0);
    result.set("fence_broken", whole ? 0.0 : 1.0);
    if (with_weights) result.set("weights", Tensor::from({now.data(), size}, {before_.numel()}));
  }

 private:
  static constexpr float kFence = 12345.0F;
  static constexpr int64_t kFenceLength = 3;

  Tensor before_;
  Tensor block_;
  Tensor view_;
};

/// Task 1b.
Parcel run_average_weights(const Parcel& input, ProcessGroup& world) {
  const Weights weights(input);
  average_weights(weights.view(), input.number("share"), world);
  Parcel result;
  weights.write(/*with_weights=*/true, result);
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
        of_the_step() = {a.stage.parameters(), a.stage.gradients()};
        const Aggregation aggregation{
            .every = static_cast<int64_t>(every.at(static_cast<size_t>(a.step - 1))),
            .share = input.number("share")};
        return train_step(a.stage, a.optimizer, a.microbatches, a.loss, a.learning_rate, a.max_norm,
                          first_step + a.step - 1, aggregation, world);
      });
  result.set("weight_bytes", weight_bytes);
  return result;
}

/// Task 4.
Parcel run_drift(const Parcel& input, ProcessGroup& world) {
  const Weights weights(input);
  Parcel result;
  result.set("drift", drift(weights.view(), input.number("share"), world));
  weights.write(/*with_weights=*/false, result);
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
