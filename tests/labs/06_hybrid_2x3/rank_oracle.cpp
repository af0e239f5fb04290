// The oracle: one process with all layers, which reads the microbatches of all pipelines.
#include <fmt/format.h>

#include <vector>

#include "common/optim/clip.h"
#include "labs/01_single_gpu/single_gpu.h"
#include "tests/labs/06_hybrid_2x3/rank_mesh.h"
#include "tests/labs/06_hybrid_2x3/rank_scenarios.h"
#include "tests/labs/pipeline/oracle.h"

namespace lab06 {

using lab::ProcessGroup;
using lab::Tensor;
using lab::TokenBatch;
using lab::grading::Parcel;

namespace {

std::vector<TokenBatch> of_pipeline(const Parcel& input, int pipeline) {
  std::vector<TokenBatch> batches;
  for (int k = 0; k < int_of(input, "microbatches"); ++k)
    batches.push_back(input.batch(fmt::format("microbatch.{}.{}", pipeline, k)));
  return batches;
}

/// Adds to the gradients, returns the loss.
double pass(lab::LlamaStage& model, const TokenBatch& batch, int64_t total) {
  const Tensor logits = model.forward(batch);
  const double loss = lab01::causal_lm_loss(logits, batch, total);
  model.backward(logits);
  return loss;
}

/// Leaves the gradients of the step in the model: those of each pipeline, from zero on, added up in
/// the order of the pipelines. Returns the parts of the pipelines in the loss.
std::vector<double> whole_step(lab::LlamaStage& model, const Parcel& input) {
  const auto total = static_cast<int64_t>(input.number("total"));
  std::vector<double> losses;
  Tensor sum;
  for (int d = 0; d < int_of(input, "dp"); ++d) {
    model.zero_gradients();
    losses.push_back(0.0);
    for (const TokenBatch& batch : of_pipeline(input, d))
      losses.back() += pass(model, batch, total);
    const Tensor own = model.gradients();
    if (d == 0)
      sum = own.clone();
    else
      for (int64_t i = 0; i < sum.numel(); ++i) sum.data()[i] += own.data()[i];
  }
  model.gradients().copy_from(sum);
  return losses;
}

}  // namespace

Parcel run_parts(const Parcel& input, ProcessGroup&) {
  lab::LlamaStage model = pipeline_tests::make_whole_model();
  Parcel result;
  pipeline_tests::describe(model, result);
  result.set("weights", pipeline_tests::packed(model, model.parameters()));
  for (int d = 0; d < int_of(input, "dp"); ++d) {
    std::vector<double> losses;
    for (const TokenBatch& batch : of_pipeline(input, d)) {
      model.zero_gradients();
      losses.push_back(pass(model, batch, static_cast<int64_t>(input.number("total"))));
      result.set(fmt::format("gradients.{}.{}", d, losses.size() - 1),
                 pipeline_tests::packed(model, model.gradients()));
    }
    result.set(fmt::format("losses.{}", d), losses);
  }
  result.set("sums_of_losses", whole_step(model, input));
  result.set("sum", pipeline_tests::packed(model, model.gradients()));
  return result;
}

Parcel run_one_process(const Parcel& input, ProcessGroup&) {
  lab::LlamaStage model = pipeline_tests::make_whole_model();
  const auto optimizer =
      pipeline_tests::make_optimizer(input.text("optimizer"), model.parameters().numel());
  Parcel result;
  for (int step = 0; step < int_of(input, "steps"); ++step) {
    result.set(fmt::format("losses.{}", step), whole_step(model, input));
    if (const double max_norm = input.number("max_norm"); max_norm > 0)
      lab::clip_gradients(model, max_norm);
    optimizer->step(model.parameters(), model.gradients(),
                    static_cast<float>(input.number("learning_rate")));
    result.set(fmt::format("weights.{}", step), pipeline_tests::packed(model, model.parameters()));
  }
  return result;
}

}  // namespace lab06
