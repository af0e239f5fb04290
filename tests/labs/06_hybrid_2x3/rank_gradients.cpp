// Targets, gradients and losses of a step: tasks 4, 5 and 7.
#include <fmt/format.h>

#include "common/tensor/todo.h"
#include "labs/01_single_gpu/single_gpu.h"
#include "tests/labs/06_hybrid_2x3/rank_mesh.h"
#include "tests/labs/06_hybrid_2x3/rank_scenarios.h"
#include "tests/labs/pipeline/packed.h"

namespace lab06 {

using lab::ProcessGroup;
using lab::Tensor;
using lab::TokenBatch;
using lab::grading::Parcel;

namespace {

/// What people see who have picked another stage's actions.
[[noreturn]] void explain(const lab::Error& error, const Mesh& mesh) {
  const std::string what = error.what();
  const bool other_stage = what.find("there is no rank") != std::string::npos ||
                           what.find("before it is received") != std::string::npos;
  if (!other_stage) throw lab::Error(what);
  throw lab::Error(
      fmt::format("run_actions on stage {} of pipeline {}: {}\nhas this rank the actions of its "
                  "own stage? schedule.stages has one list per stage: take the one of "
                  "mesh.place.stage",
                  mesh.place.stage, mesh.place.pipeline, what));
}

}  // namespace

Parcel run_total_targets(const Parcel& input, ProcessGroup& world) {
  Mesh mesh = mesh_of(input, world);
  const lab::LlamaStage stage = stage_of(mesh);
  std::vector<TokenBatch> microbatches = microbatches_of(input);
  if (input.has("long_row")) {
    const auto length = static_cast<int64_t>(input.number("long_row"));
    microbatches = {{.batch = 1, .length = length, .tokens = {}}};
    microbatches[0].tokens.assign(static_cast<size_t>(length), 1);
  }
  const uint64_t before = last_operation(world);
  Parcel result;
  result.set("total", static_cast<double>(total_targets(stage, microbatches, mesh)));
  result.set("operations", operations_of(world, before));
  return result;
}

Parcel run_gradients(const Parcel& input, ProcessGroup& world) {
  Mesh mesh = mesh_of(input, world);
  lab::LlamaStage stage = stage_of(mesh);
  const lab::Schedule schedule = schedule_of(input);
  const std::vector<TokenBatch> microbatches = microbatches_of(input);
  Parcel result;
  uint64_t before = last_operation(world);
  total_targets(stage, microbatches, mesh);  // a correct one
  result.set("counting", operations_of(world, before));

  std::vector<double> totals;
  const LossFunction loss = [&](const Tensor& logits, const TokenBatch& batch, int64_t total) {
    totals.push_back(static_cast<double>(total));
    return lab01::causal_lm_loss(logits, batch, total);
  };
  pipeline_tests::fill_gradients(stage, static_cast<float>(input.number("leftover")));
  before = last_operation(world);
  try {
    result.set("loss", compute_gradients(stage, schedule, microbatches, loss, mesh));
  } catch (const lab::NotImplemented&) {
    throw;
  } catch (const lab::BrokenOff&) {
    throw;
  } catch (const lab::Error& error) {
    explain(error, mesh);
  }
  require_nothing_pending(world, "compute_gradients");
  result.set("operations", operations_of(world, before));
  result.set("totals", totals);
  result.set("gradients", pipeline_tests::packed(stage, stage.gradients()));
  result.set("gradient_bytes", static_cast<double>(stage.gradients().bytes()));
  return result;
}

Parcel run_gradients_refusal(const Parcel& input, ProcessGroup& world) {
  Mesh mesh = mesh_of(input, world);
  lab::LlamaStage stage = stage_of(mesh);
  const uint64_t before = last_operation(world);
  int losses = 0;
  const LossFunction loss = [&](const Tensor& logits, const TokenBatch& batch, int64_t total) {
    ++losses;
    return lab01::causal_lm_loss(logits, batch, total);
  };
  Parcel result;
  result.set_text("error", "");
  try {
    compute_gradients(stage, schedule_of(input), microbatches_of(input), loss, mesh);
  } catch (const lab::NotImplemented&) {
    throw;
  } catch (const lab::BrokenOff&) {
    throw;
  } catch (const lab::Error& error) {
    result.set_text("error", error.what());
  }
  result.set("operations", operations_of(world, before));
  result.set("losses", losses);
  return result;
}

Parcel run_mean_loss(const Parcel& input, ProcessGroup& world) {
  Mesh mesh = mesh_of(input, world);
  const uint64_t before = last_operation(world);
  Parcel result;
  result.set("mean", mean_loss(input.number("loss"), mesh));
  result.set("operations", operations_of(world, before));
  return result;
}

}  // namespace lab06
