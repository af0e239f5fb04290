// One wave of a pipeline, on a network or in a simulation of its own.
#include <fmt/format.h>

#include "common/comm/sim/simulation.h"
#include "common/tensor/parallel.h"
#include "common/train/recorded_timeline.h"
#include "labs/01_single_gpu/single_gpu.h"
#include "labs/05_microbatches/microbatches.h"
#include "tests/labs/05_microbatches/operation.h"
#include "tests/labs/05_microbatches/rank_scenarios.h"
#include "tests/labs/05_microbatches/rank_stage.h"
#include "tests/labs/05_microbatches/tiny_pipeline.h"
#include "tests/labs/pipeline/packed.h"

namespace lab05 {

using lab::ProcessGroup;
using lab::Tensor;
using lab::TokenBatch;
using lab::grading::Parcel;

namespace {

/// What a stage keeps of each microbatch.
std::vector<double> bytes_of_each(const ProcessGroup& world,
                                  const std::vector<TokenBatch>& microbatches) {
  lab::LlamaStage stage = tiny_stage(world.rank(), world.size());
  std::vector<double> bytes;
  for (const TokenBatch& microbatch : microbatches) {
    if (world.rank() == 0)
      stage.forward(microbatch);
    else
      stage.forward(Tensor::zeros({microbatch.batch, microbatch.length, pipeline_tests::kDim}));
    bytes.push_back(static_cast<double>(stage.activation_bytes()));
    stage.discard();
  }
  return bytes;
}

}  // namespace

Parcel run_wave(const Parcel& input, ProcessGroup& world) {
  const lab::Schedule schedule = lab::schedule_from_text(input.text("schedule"), "schedule");
  const std::vector<TokenBatch> microbatches = microbatches_of(input);
  lab::LlamaStage stage = tiny_stage(world.rank(), world.size());
  pipeline_tests::fill_gradients(stage, static_cast<float>(input.number("leftover")));
  lab::record_passes(stage, world.recorder());

  std::vector<double> totals;
  std::vector<double> order;  // of the microbatches that the loss is asked about
  const LossFunction loss = [&](const Tensor& logits, const TokenBatch& batch, int64_t total) {
    totals.push_back(static_cast<double>(total));
    order.push_back(-1);
    for (size_t k = 0; k < microbatches.size(); ++k)
      if (&batch == &microbatches[k]) order.back() = static_cast<double>(k);
    return lab01::causal_lm_loss(logits, batch, total);
  };
  const double sum =
      run_actions(stage, schedule.stages[static_cast<size_t>(world.rank())], microbatches, loss,
                  static_cast<int64_t>(input.number("total")), world);
  require_nothing_pending(world, "run_actions");

  Parcel result;
  result.set("loss", sum);
  result.set("totals", totals);
  result.set("order", order);
  result.set("gradients", pipeline_tests::packed(stage, stage.gradients()));
  result.set("peak_bytes", static_cast<double>(stage.peak_activation_bytes()));
  result.set("bytes_of_each", bytes_of_each(world, microbatches));
  result.set("in_flight_bytes", static_cast<double>(stage.activation_bytes()));
  result.set("messages", messages_of(world));
  result.set("operations", to_numbers(world.recorder().history()));
  return result;
}

Parcel run_to_the_end(const Parcel& input) {
  lab::set_thread_count(1);
  const lab::Schedule schedule = lab::schedule_from_text(input.text("schedule"), "schedule");
  const TokenBatch tokens{.batch = 1, .length = 2, .tokens = {1, 2}};
  const std::vector<TokenBatch> microbatches(static_cast<size_t>(schedule.microbatches), tokens);
  const lab::SimulationReport report =
      lab::simulate({.ranks = schedule.stage_count()}, [&](ProcessGroup& world) {
        lab::LlamaStage stage = tiny_stage(world.rank(), world.size());
        run_actions(stage, schedule.stages[static_cast<size_t>(world.rank())], microbatches,
                    lab01::causal_lm_loss, schedule.microbatches, world);
      });
  Parcel result;
  result.set_text("diagnosis", report.diagnosis ? report.diagnosis->text() : "");
  const bool deadlock =
      report.diagnosis && report.diagnosis->kind == lab::Diagnosis::Kind::kDeadlock;
  result.set("deadlock", deadlock ? 1 : 0);
  std::string errors;
  if (!report.diagnosis)
    for (const std::string& error : report.errors) errors += error.empty() ? "" : error + "\n";
  result.set_text("errors", errors);
  return result;
}

}  // namespace lab05
