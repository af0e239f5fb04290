// The rank program of lab 03: calls an implementation's functions on what the verdict sends.
#include <fmt/format.h>

#include <string>
#include <vector>

#include "common/grading/rank_main.h"
#include "labs/01_single_gpu/single_gpu.h"
#include "labs/02_gradient_allreduce/gradient_allreduce.h"
#include "labs/03_weight_aggregation/weight_aggregation.h"
#include "tests/labs/03_weight_aggregation/rank_replicas.h"

namespace lab03 {
namespace {

using lab::ProcessGroup;
using lab::grading::Parcel;

Parcel run_share_of(const Parcel& input, ProcessGroup& world) {
  Parcel result;
  result.set("share", share_of(input.number("examples"), world));
  return result;
}

std::vector<lab::Parameter> parameters_of(const Parcel& input) {
  std::vector<lab::Parameter> parameters;
  for (int i = 0; i < static_cast<int>(input.number("parameters")); ++i)
    parameters.push_back({input.text(fmt::format("name.{}", i)),
                          input.tensor(fmt::format("value.{}", i)).clone(),
                          input.tensor(fmt::format("gradient.{}", i)).clone()});
  return parameters;
}

void return_parameters(const std::vector<lab::Parameter>& parameters, Parcel& result) {
  for (size_t i = 0; i < parameters.size(); ++i) {
    result.set(fmt::format("value.{}", i), parameters[i].value);
    result.set(fmt::format("gradient.{}", i), parameters[i].gradient);
  }
}

Parcel run_average_weights(const Parcel& input, ProcessGroup& world) {
  const std::vector<lab::Parameter> parameters = parameters_of(input);
  average_weights(parameters, input.number("share"), world);
  Parcel result;
  return_parameters(parameters, result);
  return result;
}

Parcel run_drift(const Parcel& input, ProcessGroup& world) {
  const std::vector<lab::Parameter> parameters = parameters_of(input);
  Parcel result;
  result.set("drift", drift(parameters, input.number("share"), world));
  return_parameters(parameters, result);
  return result;
}

/// For every pair of "steps" and "every": 1 if an average is due.
Parcel run_aggregation_due(const Parcel& input) {
  const std::vector<double> steps = input.numbers("steps");
  const std::vector<double> every = input.numbers("every");
  std::vector<double> due;
  for (size_t i = 0; i < steps.size(); ++i)
    due.push_back(
        aggregation_due(static_cast<int64_t>(steps[i]), static_cast<int64_t>(every[i])) ? 1 : 0);
  Parcel result;
  result.set("due", due);
  return result;
}

/// Messages and collectives that this rank has begun so far.
double operations_of(ProcessGroup& world) {
  const lab::RankSnapshot now = world.recorder().snapshot();
  uint64_t operations = 0;
  for (size_t kind = 0; kind < now.traffic.size(); ++kind)
    if (lab::is_message(static_cast<lab::OpKind>(kind)) ||
        lab::is_collective(static_cast<lab::OpKind>(kind)))
      operations += now.traffic[kind].operations;
  return static_cast<double>(operations);
}

/// Several steps of task 3 on this rank's microbatches.
Parcel run_train_step(const Parcel& input, ProcessGroup& world) {
  lab::LlamaStage model = tiny_model();
  const auto optimizer = make_optimizer(input.text("optimizer"), model.parameters().numel());
  const Aggregation aggregation{.every = static_cast<int64_t>(input.number("every")),
                                .share = input.number("share")};
  Parcel result;
  for (int step = 1; step <= static_cast<int>(input.number("steps")); ++step) {
    const double before = operations_of(world);
    const double loss =
        train_step(model, *optimizer, microbatches(input, world.rank(), step),
                   lab01::causal_lm_loss, static_cast<float>(input.number("learning_rate")),
                   input.number("max_norm"), step, aggregation, world);
    result.set(fmt::format("operations.{}", step), operations_of(world) - before);
    result.set(fmt::format("loss.{}", step), loss);
    result.set(fmt::format("updates.{}", step), static_cast<double>(optimizer->steps()));
    result.set(fmt::format("weights.{}", step), model.parameters().clone());
  }
  return result;
}

/// The same with lab 02's step, which averages the gradients.
Parcel run_gradient_aggregation(const Parcel& input, ProcessGroup& world) {
  lab::LlamaStage model = tiny_model();
  const auto optimizer = make_optimizer(input.text("optimizer"), model.parameters().numel());
  Parcel result;
  for (int step = 1; step <= static_cast<int>(input.number("steps")); ++step) {
    lab02::train_step(model, *optimizer, microbatches(input, world.rank(), step),
                      lab01::causal_lm_loss, static_cast<float>(input.number("learning_rate")),
                      input.number("max_norm"), world);
    result.set(fmt::format("weights.{}", step), model.parameters().clone());
  }
  return result;
}

}  // namespace
}  // namespace lab03

int main(int argc, char** argv) {
  return lab::grading::rank_main(
      argc, argv,
      {.alone = {{"aggregation_due", lab03::run_aggregation_due},
                 {"replicas", lab03::run_replicas}},
       .group = {{"share_of", lab03::run_share_of},
                 {"average_weights", lab03::run_average_weights},
                 {"train_step", lab03::run_train_step},
                 {"gradient_aggregation", lab03::run_gradient_aggregation},
                 {"drift", lab03::run_drift}}});
}
