// All functions together: steps of a model divided among ranks against one process, and the lab's
// program with the student's file.
#include <gtest/gtest.h>

#include <map>

#include "common/model/llama_stage.h"
#include "common/optim/clip.h"
#include "common/optim/optimizer.h"
#include "tests/grading/program_run.h"
#include "tests/grading/reference.h"
#include "tests/labs/10_tensor_parallel/slices.h"

namespace lab10::program {
namespace {

using lab::grading::Call;
using lab::grading::expect_program;
using lab::grading::JobOptions;
using lab::grading::late_messages;

struct Training {
  std::string name;
  lab::LlamaConfig model;
  int64_t batch = 2;
  int64_t length = 6;
  size_t steps = 2;
  size_t microbatches = 1;
  double max_norm = 0;
  uint64_t seed = 1;

  lab::TokenBatch tokens(size_t step, size_t microbatch) const {
    std::vector<int64_t> lengths;
    for (int64_t b = 0; b < batch; ++b)
      lengths.push_back(1 + (length + b + static_cast<int64_t>(step + microbatch)) % length);
    return lab::grading::draw_tokens(lengths, length, model.vocab_size,
                                     seed + 100 * step + microbatch);
  }
};

struct OneProcess {
  Tensor logits;
  Numbers losses;
  Numbers norms;
  std::map<std::string, Tensor> gradients;  // of the first step, clipped
  std::map<std::string, Tensor> weights;    // at the end
};

OneProcess train(const Training& t) {
  lab::LlamaStage model(t.model, lab::StageSpan::whole(t.model), lab::Device::kCpu, 7);
  lab::Sgd optimizer;
  OneProcess result;
  for (size_t s = 0; s < t.steps; ++s) {
    int64_t targets = 0;
    for (size_t m = 0; m < t.microbatches; ++m) targets += t.tokens(s, m).target_count();
    model.zero_gradients();
    double loss = 0;
    for (size_t m = 0; m < t.microbatches; ++m) {
      const Tensor logits = model.forward(t.tokens(s, m));
      if (s == 0 && m == 0) result.logits = logits.clone();
      loss += lab::grading::reference_loss(logits, t.tokens(s, m), targets);
      model.backward(logits);
    }
    if (t.max_norm > 0) result.norms.push_back(lab::clip_gradients(model, t.max_norm));
    if (s == 0)
      for (const lab::Parameter& parameter : model.named_parameters())
        result.gradients[parameter.name] = parameter.gradient.clone();
    optimizer.step(model.parameters(), model.gradients(), 0.1F);
    result.losses.push_back(loss);
  }
  for (const lab::Parameter& parameter : model.named_parameters())
    result.weights[parameter.name] = parameter.value.clone();
  return result;
}

/// Forward: embedding, two a layer, and the loss. Backward: two a layer, and the head.
void expect_traffic(const Training& t, size_t n, const Parcel& rank) {
  const std::vector<Operation> sent = operations_of(rank.part("sent.0"));
  size_t large = 0;
  const auto bytes = static_cast<uint64_t>(t.batch * t.length * t.model.dim) * sizeof(float);
  for (const Operation& operation : sent) large += operation.bytes == bytes ? 1U : 0U;
  const size_t right = n == 1 ? 0 : t.microbatches * (4 * static_cast<size_t>(t.model.layers) + 2);
  if (large != right)
    stop(
        fmt::format("a step has {} all_reduces of B*T*C numbers; with two each way in {} layers, "
                    "one for the embedding and one for the head, it should have {}",
                    large, t.model.layers, right));
}

void judge(const Training& t, const std::vector<Parcel>& ranks) {
  const OneProcess right = train(t);
  const size_t n = ranks.size();
  // Those of queries and keys may be sums of larger numbers that cancel.
  double largest = 0;
  for (const auto& [name, gradient] : right.gradients)
    largest = std::max(largest, lab::grading::largest_magnitude(numbers_of(gradient)));
  for (size_t r = 0; r < n; ++r) {
    const lab::Range own = lab::range_of(t.model.vocab_size, slice(r, n));
    expect_tensor(fmt::format("logits of rank {}'s tokens", r), ranks[r].tensor("logits"),
                  numbers_of(right.logits.columns(own.first, own.last)));
    for (const auto& [name, gradient] : right.gradients)
      expect_tensor(fmt::format("the gradient of {} on rank {}", name, r),
                    ranks[r].tensor("gradient." + name),
                    numbers_of(lab::slice_of(name, gradient, slice(r, n))), {},
                    {.terms = 10'000, .least = 0.1 * largest});
    for (size_t s = 0; s < t.steps; ++s) {
      lab::grading::expect(ranks[r].number(fmt::format("loss.{}", s)),
                           {.what = fmt::format("the loss of step {} on rank {}", s + 1, r),
                            .values = {right.losses[s]},
                            .tolerance = {2e-5 * std::max(1.0, right.losses[s])}});
      if (t.max_norm > 0)
        lab::grading::expect(ranks[r].number(fmt::format("norm.{}", s)),
                             {.what = fmt::format("the norm in step {} on rank {}", s + 1, r),
                              .values = {right.norms[s]},
                              .tolerance = {1e-4 * right.norms[s]}});
    }
    for (const auto& [name, weight] : right.weights)
      expect_tensor(fmt::format("{} after {} steps on rank {}", name, t.steps, r),
                    ranks[r].tensor("weight." + name),
                    numbers_of(lab::slice_of(name, weight, slice(r, n))), {},
                    {.terms = 10'000, .least = 0.3});
    expect_traffic(t, n, ranks[r]);
  }
}

void expect_training(size_t n, uint64_t seed, const JobOptions& options) {
  const auto width = static_cast<int64_t>(n);
  lab::LlamaConfig model{.vocab_size = 17,
                         .dim = 24,
                         .heads = 6,
                         .kv_heads = 6,
                         .layers = 2,
                         .hidden_dim = 30,
                         .context = 8,
                         .init_std = 0.2F};
  lab::LlamaConfig grouped = model;
  grouped.kv_heads = n == 2 ? 2 : n == 6 ? 6 : 3;
  lab::LlamaConfig tied = model;
  tied.tied_head = true;
  tied.vocab_size = 3 * width;
  std::vector<Training> trainings{
      {.name = "two steps", .model = model},
      {.name = "twenty steps", .model = model, .steps = 20, .max_norm = 1},
      {.name = "grouped queries, three microbatches in flight",
       .model = grouped,
       .batch = 1,
       .length = 8,
       .microbatches = 3,
       .max_norm = 0.1},
      {.name = "a tied head", .model = tied, .batch = 3, .length = 3, .microbatches = 2},
      {.name = "no target", .model = model, .length = 1, .max_norm = 1}};
  std::vector<Call> calls;
  for (Training& t : trainings) {
    t.seed = seed + 10'000 * calls.size() + 7 * lab::grading::scenario_seed();
    Parcel input;
    set_model(t.model, input);
    input.set("steps", static_cast<double>(t.steps));
    input.set("microbatches", static_cast<double>(t.microbatches));
    input.set("max_norm", t.max_norm);
    for (size_t s = 0; s < t.steps; ++s)
      for (size_t m = 0; m < t.microbatches; ++m)
        input.set(fmt::format("tokens.{}.{}", s, m), t.tokens(s, m));
    calls.push_back({.scenario = "steps", .inputs = std::vector<Parcel>(n, input), .name = t.name});
  }
  judge_calls(calls, options,
              [&](size_t k, const std::vector<Parcel>& ranks) { judge(trainings[k], ranks); });
}

TEST(TaskProgram, StepsOnTwoRanks) { expect_training(2, 71, late_messages(71)); }
TEST(TaskProgram, StepsOnThreeRanks) { expect_training(3, 72, late_messages(72)); }
TEST(TaskProgram, StepsOnOneRank) { expect_training(1, 73, late_messages(73)); }
TEST(TaskProgram, StepsOnSixRanks) { expect_training(6, 74, late_messages(74)); }

TEST(TaskProgram, TwoSlicesOfTwoStages) {
  expect_program({"--dp", "1", "--pp", "2", "--tp", "2", "--microbatches", "3", "--steps", "4",
                  "--batch", "1", "--log-every", "1", "--clip", "0.5"});
}
TEST(TaskProgram, TwoSlicesOfTwoReplicas) {
  expect_program({"--dp", "2", "--tp", "2", "--steps", "4", "--batch", "1", "--log-every", "1"});
}
TEST(TaskProgram, OneRank) {
  expect_program({"--tp", "1", "--steps", "3", "--batch", "1", "--log-every", "1"});
}

}  // namespace
}  // namespace lab10::program
