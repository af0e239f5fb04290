// Task 1: what each stage returns, and what travels for it.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/labs/04_pipeline_1f1b/passes.h"

namespace lab04::task1 {
namespace {

using lab::Tensor;
using lab::grading::Expected;
using lab::grading::late_messages;
using lab::grading::Mistake;
using lab::grading::Parcel;
using lab::grading::stop;
using lab::grading::to_doubles;

/// Only the first stage gets the tokens.
std::vector<Parcel> inputs(const Pipeline& pipeline) {
  std::vector<Parcel> stages = pipeline.inputs();
  for (size_t s = 1; s < stages.size(); ++s)
    for (size_t k = 0; k < pipeline.passes(); ++k)
      stages[s].set(fmt::format("microbatch.{}.0", k), decoy(pipeline, s, k));
  return stages;
}

void expect_form(const Pipeline& pipeline, const Parcel& result, size_t stage, size_t pass) {
  const std::string entry = fmt::format("output.{}", pass);
  if (!result.has(entry))
    stop(
        fmt::format("rank {}: forward returns a tensor without memory: every stage returns what "
                    "it has computed",
                    stage));
  const bool last = stage + 1 == pipeline.stages();
  const lab::LlamaConfig& model = pipeline.training.model;
  const lab::Shape right = {pipeline.batch(pass).batch, pipeline.batch(pass).length,
                            last ? model.vocab_size : model.dim};
  const lab::Shape& shape = result.tensor(entry).shape();
  const bool as_many = right[0] * right[1] * right[2] == result.tensor(entry).numel();
  if (shape != right)
    stop(fmt::format(
        "rank {}: forward returns a tensor {}: it should be the {} {}{}", stage,
        lab::to_string(shape), last ? "logits" : "hidden states", lab::to_string(right),
        as_many && pass > 0 ? "; as many numbers, but of the shape of an earlier batch?" : ""));
  if (result.number(fmt::format("in_flight.{}", pass)) == 0)
    stop(
        fmt::format("rank {}: the stage keeps no activations after forward: its backward pass "
                    "will need them; call stage.forward, and do not call stage.discard",
                    stage));
  for (const float gradient : result.tensor(fmt::format("gradients.{}", pass)).values())
    if (gradient != pipeline.training.leftover)
      stop(
          fmt::format("rank {}: forward changes the stage's gradients: backward adds to them, "
                      "train_step sets them to zero",
                      stage));
}

/// What a stage returns when all of them make the same mistake.
std::vector<Mistake> mistakes(const Pipeline& pipeline, size_t stage, size_t pass) {
  const auto output = [&](size_t s, const Chain::HandOn& hand_on = {}) {
    return to_doubles(Chain(pipeline).forward(pipeline.batch(pass), hand_on)[s]);
  };
  const auto zeros = [](size_t, const Tensor&, const Tensor& made) {
    return Tensor::zeros(made.shape());
  };
  const auto input = [](size_t s, const Tensor& received, const Tensor& made) {
    return s == 0 ? made : received;
  };
  const auto without_own_padding = [&](size_t s, const Tensor& made) {
    return without_padding(made, s == 0 ? pipeline.batch(pass) : decoy(pipeline, s, pass));
  };
  const auto masked = [&](size_t s, const Tensor&, const Tensor& made) {
    return without_own_padding(s, made);
  };
  const std::string no_padding =
      "zero was put where the batch has padding: compute there, too, as one process does";
  const Tensor right = Chain(pipeline).forward(pipeline.batch(pass))[stage];
  const Tensor if_masked = Chain(pipeline).forward(pipeline.batch(pass), masked)[stage];
  return {
      {to_doubles(if_masked), no_padding},
      {to_doubles(without_own_padding(stage, right)), no_padding},
      {to_doubles(without_own_padding(stage, if_masked)), no_padding},
      {output(stage, zeros),
       "computed on zeros, not on what the previous stage has sent: receive first, then compute"},
      {output(stage, input),
       "the previous stage has passed on its own input: send what it has computed from it"},
      {output(stage > 0 ? stage - 1 : 0),
       "forward returns the stage's input: return what the stage has computed from it"}};
}

void expect_outputs(const Pipeline& pipeline, const std::vector<Parcel>& stages, size_t pass) {
  const std::vector<Tensor> right = Chain(pipeline).forward(pipeline.batch(pass));
  const std::vector<Numbers> got = lab::grading::tensors_of(stages, fmt::format("output.{}", pass));
  lab::grading::expect_on_every_rank(got, [&](size_t s) {
    const Numbers values = to_doubles(right[s]);
    return Expected{
        .what = s + 1 == stages.size() ? "the logits" : "the hidden states that forward returns",
        .values = values,
        .tolerance = {kTolerance * lab::grading::largest_magnitude(values)},
        .mistakes = [&pipeline, s, pass] { return mistakes(pipeline, s, pass); }};
  });
  lab::grading::confirm_bits(got.back(), to_doubles(right.back()), "the logits");
}

void judge(const Pipeline& pipeline, const std::vector<Parcel>& stages) {
  for (size_t pass = 0; pass < pipeline.passes(); ++pass) {
    for (size_t s = 0; s < stages.size(); ++s) expect_form(pipeline, stages[s], s, pass);
    expect_outputs(pipeline, stages, pass);
    expect_same_weights(stages, pass);
    expect_messages_of_pass(pipeline, stages, pass, Way::kForward);
  }
}

const PipelineScenario kForward{"forward", inputs, judge, Way::kForward};

TEST(Task1, ThreeStages) {
  judge_pipelines(kForward, whole_world(3), 200, lab::grading::buffered_messages());
}

TEST(Task1, OneStageSendsNothing) {
  judge_pipelines(kForward, whole_world(1), 210, late_messages(21));
}

TEST(Task1, OneToSixStagesWithLateMessages) {
  judge_pipelines(kForward, parts_of_six_ranks(), 220, late_messages(22));
}

TEST(Task1, HiddenStatesTooLargeFor16Bits) {
  PipelineScenario large = kForward;
  large.init_std = 1e5F;
  judge_pipelines(large, parts_of_three_ranks(), 240, late_messages(24));
}

TEST(Task1, ThreeProcesses) { judge_pipelines(kForward, parts_of_three_ranks(), 230, {}); }

}  // namespace
}  // namespace lab04::task1
