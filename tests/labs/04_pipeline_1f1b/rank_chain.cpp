// All stages in one process, one after the other.
#include "tests/labs/04_pipeline_1f1b/rank_chain.h"

#include <fmt/format.h>

#include <string>
#include <vector>

#include "common/tensor/error.h"
#include "labs/01_single_gpu/single_gpu.h"
#include "tests/labs/pipeline/packed.h"
#include "tests/labs/pipeline/tiny_pipeline.h"

namespace lab04 {
namespace {

using lab::Tensor;
using lab::TokenBatch;
using lab::grading::Parcel;

using Stages = std::vector<lab::LlamaStage>;

/// What a stage gets by mistake in the place of `right`.
Tensor received(const Tensor& right, const std::string& wrong) {
  if (wrong != "zeros" && wrong != "overwritten") return right;
  const Tensor other = Tensor::empty(right.shape());
  other.fill(wrong == "zeros" ? 0.0F : kOverwritten);
  return other;
}

/// The output of every stage.
std::vector<Tensor> forward(Stages& stages, const TokenBatch& tokens, const std::string& wrong) {
  std::vector<Tensor> outputs = {stages[0].forward(tokens)};
  Tensor handed_on = outputs[0];
  for (size_t r = 1; r < stages.size(); ++r) {
    const Tensor input = received(handed_on, wrong);
    outputs.push_back(stages[r].forward(input));
    handed_on = wrong == "input" ? input : outputs.back();
  }
  return outputs;
}

void backward(Stages& stages, const Tensor& logits_gradient, const std::string& wrong) {
  Tensor gradient = logits_gradient;
  for (size_t r = stages.size(); r-- > 0;) {
    const bool last = r + 1 == stages.size();
    const Tensor output_gradient = gradient;
    const Tensor input_gradient = stages[r].backward(output_gradient.clone());
    gradient = wrong == "output_gradient" && !last ? output_gradient : input_gradient;  // [B, T, C]
  }
}

/// The packed gradients of all stages, one behind the other.
Tensor joined_gradients(const Stages& stages) {
  std::vector<float> all;
  for (const lab::LlamaStage& stage : stages) {
    const Tensor own = pipeline_tests::packed(stage, stage.gradients());
    all.insert(all.end(), own.values().begin(), own.values().end());
  }
  return Tensor::from(all, {static_cast<int64_t>(all.size())});
}

}  // namespace

Parcel run_chain(const Parcel& input) {
  const std::string wrong = input.has("wrong") ? input.text("wrong") : "";
  const auto leftover = static_cast<float>(input.number("leftover"));
  lab::LlamaStage whole = pipeline_tests::make_whole_model();
  Stages stages;
  for (const lab::StageSpan& span : pipeline_tests::spans_of(input.numbers("counts")))
    stages.push_back(pipeline_tests::make_stage(span));
  pipeline_tests::fill_gradients(whole, leftover);
  for (const lab::LlamaStage& stage : stages) pipeline_tests::fill_gradients(stage, leftover);

  Parcel result;
  pipeline_tests::describe(whole, result);
  for (int k = 0; k < static_cast<int>(input.number("passes")); ++k) {
    const TokenBatch tokens = input.batch(fmt::format("tokens.{}", k));
    const std::vector<Tensor> outputs = forward(stages, tokens, wrong);
    for (size_t r = 0; r < outputs.size(); ++r)
      result.set(fmt::format("output.{}.{}", k, r), outputs[r].clone());

    const Tensor logits = whole.forward(tokens);
    result.set(fmt::format("logits.{}", k), logits.clone());
    lab01::causal_lm_loss(logits, tokens, tokens.target_count());
    result.set(fmt::format("logits_gradient.{}", k), logits.clone());
    backward(stages, logits.clone(), wrong);
    whole.backward(logits);
    result.set(fmt::format("gradients.{}", k), pipeline_tests::packed(whole, whole.gradients()));
    result.set(fmt::format("wrong_gradients.{}", k), joined_gradients(stages));
  }
  return result;
}

}  // namespace lab04
