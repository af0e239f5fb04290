// The oracle: one process with all layers.
#include <fmt/format.h>

#include "labs/01_single_gpu/single_gpu.h"
#include "tests/labs/05_microbatches/rank_scenarios.h"
#include "tests/labs/05_microbatches/rank_stage.h"
#include "tests/labs/05_microbatches/tiny_pipeline.h"
#include "tests/labs/pipeline/packed.h"

namespace lab05 {
namespace {

using lab::ProcessGroup;
using lab::Tensor;
using lab::TokenBatch;
using lab::grading::Parcel;

std::vector<size_t> indices(const Parcel& input, const std::string& name) {
  const std::vector<double> numbers = input.numbers(name);
  return {numbers.begin(), numbers.end()};
}

}  // namespace

Parcel run_parts(const Parcel& input, ProcessGroup&) {
  lab::LlamaStage model = pipeline_tests::make_whole_model();
  Parcel result;
  pipeline_tests::describe(model, result);
  result.set("weights", pipeline_tests::packed(model, model.parameters()));
  std::vector<double> losses;
  for (const TokenBatch& batch : microbatches_of(input)) {
    model.zero_gradients();
    const Tensor logits = model.forward(batch);
    const double loss =
        lab01::causal_lm_loss(logits, batch, static_cast<int64_t>(input.number("total")));
    model.backward(logits);
    result.set(fmt::format("gradients{}", losses.size()),
               pipeline_tests::packed(model, model.gradients()));
    losses.push_back(loss);
  }
  result.set("losses", losses);
  return result;
}

Parcel run_one_process(const Parcel& input, ProcessGroup&) {
  lab::LlamaStage model = pipeline_tests::make_whole_model();
  const auto optimizer = make_optimizer(input.text("optimizer"), model.parameters().numel());
  Parcel result;
  for (int step = 0; step < static_cast<int>(input.number("steps")); ++step) {
    const double loss = lab01::train_step(
        model, *optimizer, microbatches_of(input), lab01::causal_lm_loss,
        static_cast<float>(input.number("learning_rate")), input.number("max_norm"));
    result.set(fmt::format("loss{}", step), loss);
    result.set(fmt::format("weights{}", step), pipeline_tests::packed(model, model.parameters()));
  }
  return result;
}

Parcel run_mixed_up(const Parcel& input, ProcessGroup&) {
  const std::vector<TokenBatch> batches = microbatches_of(input);
  const std::vector<size_t> activation_of = indices(input, "activation_of");
  const std::vector<size_t> logits_of = indices(input, "logits_of");
  const std::vector<size_t> gradient_of = indices(input, "gradient_of");
  const int stages = static_cast<int>(input.number("stages"));
  const auto total = static_cast<int64_t>(input.number("total"));

  std::vector<lab::LlamaStage> pipeline;
  std::vector<Tensor> between(batches.size());  // what the stage before has made
  for (int s = 0; s < stages; ++s) {
    lab::LlamaStage& stage = pipeline.emplace_back(tiny_stage(s, stages));
    const std::vector<Tensor> inputs = between;
    for (size_t k = 0; k < batches.size(); ++k)
      between[k] = s == 0 ? stage.forward(batches[k], static_cast<int>(k))
                          : stage.forward(inputs[activation_of[k]], static_cast<int>(k));
  }
  for (size_t k = 0; k < batches.size(); ++k) lab01::causal_lm_loss(between[k], batches[k], total);

  std::vector<std::vector<float>> gradients(pipeline.size());
  for (size_t s = pipeline.size(); s-- > 0;) {
    std::vector<Tensor> inputs;
    for (size_t k = 0; k < batches.size(); ++k)
      inputs.push_back(between[(s + 1 == pipeline.size() ? logits_of : gradient_of)[k]].clone());
    for (size_t k = 0; k < batches.size(); ++k)
      between[k] = pipeline[s].backward(inputs[k], static_cast<int>(k));
    const Tensor own = pipeline_tests::packed(pipeline[s], pipeline[s].gradients());
    gradients[s].assign(own.values().begin(), own.values().end());
  }
  std::vector<float> all;
  for (const std::vector<float>& own : gradients) all.insert(all.end(), own.begin(), own.end());
  Parcel result;
  result.set("gradients", Tensor::from(all, {static_cast<int64_t>(all.size())}));
  return result;
}

}  // namespace lab05
