// Steps of several pipelines, on record.

#include "tests/labs/06_hybrid_2x3/rank_steps.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <typeinfo>

#include "common/comm/agreement.h"
#include "common/todo.h"
#include "tests/grading/implementation.h"
#include "tests/grading/operations.h"
#include "tests/grading/refusal.h"
#include "tests/grading/training_rank.h"

namespace lab06 {

using lab::ProcessGroup;
using lab::Tensor;
using lab::TokenBatch;
using lab::grading::Parcel;
using lab::grading::StepArguments;

int int_of(const Parcel& input, const std::string& entry) {
  return static_cast<int>(input.number(entry));
}

namespace given_2 {
LAB_GIVEN Mesh make_mesh(ProcessGroup& world, int pp) {
  const Place place{.pipeline = world.rank() / pp, .stage = world.rank() % pp};
  ProcessGroup pipeline =
      world.split(place.pipeline, place.stage, fmt::format("pipeline {}", place.pipeline));
  ProcessGroup replicas =
      world.split(place.stage, place.pipeline, fmt::format("replicas of stage {}", place.stage));
  return {place, std::move(pipeline), std::move(replicas)};
}
}  // namespace given_2

namespace {

/// A part of two correct functions, which leaves no copy elsewhere in the program.
[[gnu::always_inline]] inline int64_t targets_of_step(const lab::LlamaStage& stage,
                                                      std::span<const TokenBatch> microbatches,
                                                      Mesh& mesh) {
  if (!stage.span().has_head) return 0;
  double targets = 0;
  for (const TokenBatch& batch : microbatches) targets += static_cast<double>(batch.target_count());
  return std::llround(lab::sum_over(mesh.replicas, targets));
}

}  // namespace

namespace given_4 {
LAB_GIVEN int64_t total_targets(const lab::LlamaStage& stage,
                                std::span<const TokenBatch> microbatches, Mesh& mesh) {
  return targets_of_step(stage, microbatches, mesh);
}
}  // namespace given_4

namespace given_5 {
LAB_GIVEN double compute_gradients(lab::LlamaStage& stage, const lab::Schedule& schedule,
                                   std::span<const TokenBatch> microbatches,
                                   const LossFunction& loss, Mesh& mesh) {
  const auto m = static_cast<size_t>(schedule.microbatches);
  lab::require(!microbatches.empty() && microbatches.size() % m == 0,
               "compute_gradients was called with {} microbatches, and a schedule of {}",
               microbatches.size(), m);
  const int64_t targets = targets_of_step(stage, microbatches, mesh);
  stage.zero_gradients();
  double part = 0;
  for (; !microbatches.empty(); microbatches = microbatches.subspan(m))
    part += lab05::run_actions(stage, schedule.stages.at(static_cast<size_t>(mesh.place.stage)),
                               microbatches.first(m), loss, targets, mesh.pipeline);
  mesh.replicas.all_reduce(stage.gradients());
  return part;
}
}  // namespace given_5

void note_messages(const ProcessGroup& world, Parcel& result, const std::function<void()>& body) {
  const uint64_t last = lab::grading::last_operation(world.recorder());
  body();
  Parcel sent;
  lab::grading::note_operations(world.recorder(), last, sent);
  result.set("sent", sent);
}

namespace {

lab::Schedule schedule_of(const Parcel& input) {
  const auto plan = input.text("schedule") == "gpipe" ? lab05::gpipe : lab05::one_f_one_b;
  return lab05::with_messages(plan(int_of(input, "pp"), int_of(input, "wave")));
}

/// The number of `batch` among `all`, without those that are in `used`; -1: it is none of them.
double number_of(const TokenBatch& batch, std::span<const TokenBatch> all,
                 const std::vector<double>& used) {
  for (size_t k = 0; k < all.size(); ++k)
    if (const auto number = static_cast<double>(k); all[k].batch == batch.batch &&
                                                    all[k].tokens == batch.tokens &&
                                                    std::ranges::find(used, number) == used.end())
      return number;
  return -1;
}

/// The error that picking another stage's actions leads to.
[[noreturn]] void explain(const lab::Error& error, const Mesh& mesh) {
  const std::string what = error.what();
  if (what.find("there is no rank") == std::string::npos &&
      what.find("before it is received") == std::string::npos)
    throw lab::Error(what);
  throw lab::Error(
      fmt::format("run_actions on stage {} of pipeline {}: {}\ndoes this rank have the actions of "
                  "its own stage? schedule.stages has one list per stage: take the one of "
                  "mesh.place.stage",
                  mesh.place.stage, mesh.place.pipeline, what));
}

using TakeStep =
    std::function<double(const StepArguments&, const lab::Schedule&, const LossFunction&, Mesh&)>;

Parcel record(const Parcel& input, ProcessGroup& world, const TakeStep& take_step) {
  Mesh mesh = given_2::make_mesh(world, int_of(input, "pp"));
  const lab::Schedule schedule = schedule_of(input);
  std::vector<std::vector<double>> orders;
  double gradient_bytes = 0;
  const auto take = [&](StepArguments a) {
    gradient_bytes = static_cast<double>(a.stage.gradients().bytes());
    std::vector<double> order;
    const LossFunction loss = [&](const Tensor& logits, const TokenBatch& batch, int64_t total) {
      order.push_back(number_of(batch, a.microbatches, order));
      return a.loss(logits, batch, total);
    };
    double part = 0;
    try {
      part = take_step(a, schedule, loss, mesh);
    } catch (const lab::NotImplemented&) {
      throw;
    } catch (const lab::BrokenOff&) {
      throw;
    } catch (const lab::Error& error) {
      explain(error, mesh);
    }
    orders.push_back(order);
    return part;
  };
  Parcel result = lab::grading::record_steps(input, &world, take);
  for (size_t step = 0; step < orders.size(); ++step)
    result.set(fmt::format("order.{}", step), orders[step]);
  result.set("gradient_bytes", gradient_bytes);
  result.set_text("schedule", lab::to_text(schedule));
  return result;
}

}  // namespace

std::vector<TokenBatch> microbatches_of(const Parcel& input) {
  std::vector<TokenBatch> all;
  for (int k = 0; k < int_of(input, "microbatches.0"); ++k)
    all.push_back(input.batch(fmt::format("microbatch.0.{}", k)));
  return all;
}

Parcel run_gradients(const Parcel& input, ProcessGroup& world) {
  return record(input, world, [](const StepArguments& a, auto& schedule, auto& loss, Mesh& mesh) {
    const double part = compute_gradients(a.stage, schedule, a.microbatches, loss, mesh);
    a.optimizer.step(a.stage.parameters(), a.stage.gradients(), a.learning_rate);
    return part;
  });
}

Parcel run_train_step(const Parcel& input, ProcessGroup& world) {
  return record(input, world, [](const StepArguments& a, auto& schedule, auto& loss, Mesh& mesh) {
    return train_step(a.stage, a.optimizer, schedule, a.microbatches, loss, a.learning_rate,
                      a.max_norm, mesh);
  });
}

Parcel run_gradients_refused(const Parcel& input, ProcessGroup& world) {
  Mesh mesh = given_2::make_mesh(world, int_of(input, "pp"));
  lab::LlamaStage stage(lab::grading::model_of(input), lab::grading::span_of(input),
                        lab::Device::kCpu, 1);
  constexpr float kBefore = 0.25F;
  lab::grading::fill_gradients(stage, kBefore);
  const std::vector<TokenBatch> microbatches = microbatches_of(input);
  double losses = 0;
  const LossFunction loss = [&](const Tensor&, const TokenBatch&, int64_t) { return ++losses; };
  Parcel result;
  note_messages(world, result, [&] {
    result.set_text("refusal", lab::grading::refusal_of([&] {
                      compute_gradients(stage, schedule_of(input), microbatches, loss, mesh);
                    }));
  });
  const Tensor gradients = lab::grading::packed(stage, stage.gradients());
  const auto changed =
      std::ranges::count_if(gradients.values(), [](float g) { return g != kBefore; });
  result.set("losses", losses);
  result.set("changed", static_cast<double>(changed));
  return result;
}

}  // namespace lab06
