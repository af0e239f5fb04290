// Task 2: the gradients of every stage's weights, and what travels for them.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/grading/training_oracle.h"
#include "tests/labs/04_pipeline_1f1b/passes.h"

namespace lab04::task2 {
namespace {

using lab::Tensor;
using lab::TokenBatch;
using lab::grading::Expected;
using lab::grading::late_messages;
using lab::grading::Mistake;
using lab::grading::Parcel;
using lab::grading::stop;

/// Of gradients, relative to the largest of the model: they may be summed before they are added to
/// what was there.
constexpr double kSumTolerance = 5e-6;

/// What the loss might have left: tiny numbers once, zeros where nothing is predicted. Huge ones
/// come last, because others would vanish beside them in stage.gradients().
Tensor logits_gradient(const Pipeline& pipeline, size_t pass) {
  const TokenBatch& batch = pipeline.batch(pass);
  const bool clean = pipeline.training.leftover == 0;
  const double scale = batch.target_count() == 0                ? 0.0
                       : clean && pass == 0                     ? 3e-25
                       : clean && pass + 1 == pipeline.passes() ? 3e9
                                                                : 0.3;
  return lab::grading::draw_tensor({batch.batch, batch.length, pipeline.training.model.vocab_size},
                                   scale, pipeline.training.seed + pass);
}

/// Each stage gets what the forward pass would have brought it, and of the batch only the shape.
std::vector<Parcel> inputs(const Pipeline& pipeline) {
  std::vector<Parcel> stages = pipeline.inputs();
  for (size_t k = 0; k < pipeline.passes(); ++k) {
    const std::vector<Tensor> outputs = Chain(pipeline).forward(pipeline.batch(k));
    stages.front().set(fmt::format("tokens.{}", k), pipeline.batch(k));
    stages.back().set(fmt::format("logits_gradient.{}", k), logits_gradient(pipeline, k));
    for (size_t s = 0; s < stages.size(); ++s) {
      if (s > 0) stages[s].set(fmt::format("input.{}", k), outputs[s - 1]);
      stages[s].set(fmt::format("microbatch.{}.0", k), decoy(pipeline, s, k));
    }
  }
  return stages;
}

/// A pass of one stage, with all that is known about it.
struct Pass {
  const Pipeline& pipeline;
  size_t pass;
  size_t stage;
  Numbers before;
  Numbers after;
  bool in_flight;  // of the one that is judged

  bool is_last(size_t s) const { return s + 1 == pipeline.stages(); }
  /// The stage's own gradients, times `factor`, added to what was there.
  Numbers scaled(double factor) const {
    Numbers sum = before;
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += factor * (after[i] - before[i]);
    return sum;
  }
  /// The same if all stages hand something else on.
  Numbers with(const Chain::HandOn& hand_on) const {
    Pipeline fresh = pipeline;
    fresh.training.leftover = 0;
    Chain chain(fresh);
    chain.forward(pipeline.batch(pass));
    chain.backward(logits_gradient(pipeline, pass), hand_on);
    Numbers sum = chain.gradients()[stage];
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += before[i];
    return sum;
  }
};

std::vector<Mistake> mistakes(const Pass& p) {
  Numbers own = p.after;
  for (size_t i = 0; i < own.size(); ++i) own[i] -= p.before[i];
  const auto received_again = [&](size_t s, const Tensor& received, const Tensor& made) {
    return p.is_last(s) ? made : received;
  };
  const auto both = [&](size_t s, const Tensor& received, const Tensor& made) {
    for (int64_t i = 0; !p.is_last(s) && i < made.numel(); ++i)
      made.data()[i] += received.data()[i];
    return made;
  };
  const auto masked = [&](size_t s, const Tensor&, const Tensor& made) {
    return without_padding(made, decoy(p.pipeline, s - 1, p.pass));
  };
  return {
      {p.before,
       p.in_flight
           ? "the stage's gradients are as before: stage.backward was not called"
           : "the stage's gradients are as before: stage.backward got zeros. Receive first, "
             "then compute, and send what stage.backward returns"},
      {own,
       "what was in the stage's gradients before is gone: backward adds to them, and train_step "
       "sets them to zero"},
      {p.scaled(1.0 / static_cast<double>(p.pipeline.stages())),
       "the gradients: divided by the number of stages: nothing is averaged in a pipeline, every "
       "weight is on one stage only"},
      {p.scaled(1.0 / static_cast<double>(p.pipeline.batch(p.pass).batch)),
       "the gradients: divided by the number of sequences once more: the loss has divided already"},
      {p.with(received_again),
       "a later stage has passed on the gradient of its output: send what stage.backward "
       "returns, the gradient of its input"},
      {p.with(both),
       "a later stage has added the gradient of its output to what it sends: stage.backward has "
       "counted the residual path already"},
      {p.with(masked),
       "zero was put where the batch has padding: in backward only the batch's shape matters; a "
       "rank may have other tokens, or none"}};
}

/// `chain` has taken the passes before this one.
void expect_gradients(const Pipeline& pipeline, const std::vector<Parcel>& stages, size_t pass,
                      Chain& chain) {
  const lab::grading::TrainingOracle oracle(pipeline.training);  // knows the names
  const std::vector<Numbers> before = chain.gradients();
  chain.forward(pipeline.batch(pass));
  chain.backward(logits_gradient(pipeline, pass));
  const std::vector<Numbers> after = chain.gradients();
  double largest = 0;
  for (const Numbers& part : after)
    largest = std::max(largest, lab::grading::largest_magnitude(part));
  const auto in_flight = [&](size_t s) {
    return stages[s].number(fmt::format("in_flight.{}", pass)) != 0;
  };
  const auto expected = [&](size_t s) {
    return Expected{
        .what = "the gradients",
        .values = after[s],
        .tolerance = {kSumTolerance * largest},
        .name = [&,
                 s](size_t i) { return oracle.name(i + oracle.range(static_cast<int>(s)).first); },
        .mistakes =
            [&, s] {
              return mistakes({pipeline, pass, s, before[s], after[s], in_flight(s)});
            }};
  };
  const std::vector<Numbers> got =
      lab::grading::tensors_of(stages, fmt::format("gradients.{}", pass));
  lab::grading::expect_on_every_rank(got, expected, {}, lab::grading::Blame::kLastRank);
  for (size_t s = 0; s < stages.size(); ++s) {
    if (in_flight(s))
      stop(
          fmt::format("rank {}: the stage still holds activations after backward: every forward "
                      "pass needs its stage.backward, even where nothing is predicted",
                      s));
    lab::grading::confirm_bits(got[s], after[s], "the gradients");
  }
}

void judge(const Pipeline& pipeline, const std::vector<Parcel>& stages) {
  Chain chain(pipeline);
  for (size_t pass = 0; pass < pipeline.passes(); ++pass) {
    expect_gradients(pipeline, stages, pass, chain);
    expect_same_weights(stages, pass);
    expect_messages_of_pass(pipeline, stages, pass, Way::kBackward);
  }
}

/// A gradient that is not finite must show in a step: nobody may repair it on the way. It is that
/// of the last pass, because infinite gradients stay infinite.
std::vector<Parcel> overflowed_inputs(const Pipeline& pipeline) {
  std::vector<Parcel> stages = inputs(pipeline);
  const size_t last = pipeline.passes() - 1;
  const Tensor gradient = logits_gradient(pipeline, last);
  gradient.data()[0] = std::numeric_limits<float>::infinity();
  stages.back().set(fmt::format("logits_gradient.{}", last), gradient);
  return stages;
}

void judge_overflowed(const Pipeline& pipeline, const std::vector<Parcel>& stages) {
  const std::string last = fmt::format("gradients.{}", pipeline.passes() - 1);
  for (size_t s = 0; s < stages.size(); ++s) {
    const Tensor got = stages[s].tensor(last);
    if (std::ranges::all_of(got.values(), [](float g) { return std::isfinite(g); }))
      stop(
          fmt::format("rank {}: its gradients are finite, although the gradient of the loss is "
                      "not: pass on what stage.backward returns, whatever it is",
                      s));
  }
}

const PipelineScenario kOverflowed{"backward", overflowed_inputs, judge_overflowed, Way::kBackward};

const PipelineScenario kBackward{"backward", inputs, judge, Way::kBackward};

TEST(Task2, ThreeStages) {
  judge_pipelines(kBackward, whole_world(3), 300, lab::grading::buffered_messages());
}

TEST(Task2, OneStageSendsNothing) {
  judge_pipelines(kBackward, whole_world(1), 310, late_messages(31));
}

TEST(Task2, OneToSixStagesWithLateMessages) {
  judge_pipelines(kBackward, parts_of_six_ranks(), 320, late_messages(32));
}

TEST(Task2, GradientsThatAreNotFiniteTravel) {
  judge_pipelines(kOverflowed, {{{0, 1, 2}}}, 340, lab::grading::buffered_messages());
}

TEST(Task2, ThreeProcesses) { judge_pipelines(kBackward, parts_of_three_ranks(), 330, {}); }

}  // namespace
}  // namespace lab04::task2
