// The rank program of lab 10: the contract's functions, and the scenarios of tasks 1, 2 and 6.
#include <fmt/format.h>

#include <cmath>
#include <memory>
#include <optional>

#include "common/comm/agreement.h"
#include "common/ops/ops.h"
#include "common/tensor/memory_account.h"
#include "labs/10_tensor_parallel/passes.h"
#include "tests/grading/implementation.h"
#include "tests/grading/operations.h"
#include "tests/grading/rank_main.h"
#include "tests/grading/refusal.h"
#include "tests/labs/10_tensor_parallel/rank_scenarios.h"

using lab::ProcessGroup;
using lab::Tensor;
using lab::grading::is_given;
using lab::grading::own;
using lab::grading::Parcel;

namespace lab10 {

// Correct functions of tasks 1 and 2, for tests of others.

namespace given_1 {

LAB_GIVEN void copy_to_ranks(const Tensor& x, Pass pass, ProcessGroup& ranks) {
  if (pass == Pass::kBackward && ranks.size() > 1) ranks.all_reduce(x);
}

LAB_GIVEN void sum_over_ranks(const Tensor& x, Pass pass, ProcessGroup& ranks) {
  if (pass == Pass::kForward && ranks.size() > 1) ranks.all_reduce(x);
}

}  // namespace given_1

namespace given_2 {

LAB_GIVEN void column_linear_forward(const Tensor& x, const lab::Weight& weight, const Tensor& y) {
  lab::linear_forward(x, weight.value, y);
}

LAB_GIVEN void column_linear_backward(const Tensor& dy, const Tensor& x, const lab::Weight& weight,
                                      const Tensor& dx, ProcessGroup& ranks) {
  lab::linear_backward_weight(dy, x, weight.gradient);
  lab::linear_backward_input(dy, weight.value, dx);
  if (ranks.size() > 1) ranks.all_reduce(dx);
}

LAB_GIVEN void row_linear_forward(const Tensor& x, const lab::Weight& weight, const Tensor& y,
                                  ProcessGroup& ranks) {
  lab::linear_forward(x, weight.value, y);
  if (ranks.size() > 1) ranks.all_reduce(y);
}

LAB_GIVEN void row_linear_backward(const Tensor& dy, const Tensor& x, const lab::Weight& weight,
                                   const Tensor& dx) {
  lab::linear_backward_weight(dy, x, weight.gradient);
  lab::linear_backward_input(dy, weight.value, dx);
}

}  // namespace given_2

// The contract's functions.

void copy_to_ranks(const Tensor& x, Pass pass, ProcessGroup& ranks) {
  if (is_given("1")) return given_1::copy_to_ranks(x, pass, ranks);
  own (&copy_to_ranks)(x, pass, ranks);
}

void sum_over_ranks(const Tensor& x, Pass pass, ProcessGroup& ranks) {
  if (is_given("1")) return given_1::sum_over_ranks(x, pass, ranks);
  own (&sum_over_ranks)(x, pass, ranks);
}

void column_linear_forward(const Tensor& x, const lab::Weight& weight, const Tensor& y,
                           ProcessGroup& ranks) {
  if (is_given("2")) return given_2::column_linear_forward(x, weight, y);
  own (&column_linear_forward)(x, weight, y, ranks);
}

void column_linear_backward(const Tensor& dy, const Tensor& x, const lab::Weight& weight,
                            const Tensor& dx, ProcessGroup& ranks) {
  if (is_given("2")) return given_2::column_linear_backward(dy, x, weight, dx, ranks);
  own (&column_linear_backward)(dy, x, weight, dx, ranks);
}

void row_linear_forward(const Tensor& x, const lab::Weight& weight, const Tensor& y,
                        ProcessGroup& ranks) {
  if (is_given("2")) return given_2::row_linear_forward(x, weight, y, ranks);
  own (&row_linear_forward)(x, weight, y, ranks);
}

void row_linear_backward(const Tensor& dy, const Tensor& x, const lab::Weight& weight,
                         const Tensor& dx, ProcessGroup& ranks) {
  if (is_given("2")) return given_2::row_linear_backward(dy, x, weight, dx);
  own (&row_linear_backward)(dy, x, weight, dx, ranks);
}

void mlp_forward(const lab::LayerShape& shape, const lab::LayerWeights& weights,
                 lab::LayerActivations& kept, const Tensor& output, ProcessGroup& ranks) {
  own (&mlp_forward)(shape, weights, kept, output, ranks);
}

void mlp_backward(const lab::LayerShape& shape, const lab::LayerWeights& weights,
                  lab::LayerActivations& kept, const Tensor& gradient, ProcessGroup& ranks) {
  own (&mlp_backward)(shape, weights, kept, gradient, ranks);
}

void attention_forward(const lab::LayerShape& shape, const lab::LayerWeights& weights,
                       const Tensor& rope_angles, const Tensor& input, lab::LayerActivations& kept,
                       ProcessGroup& ranks) {
  own (&attention_forward)(shape, weights, rope_angles, input, kept, ranks);
}

void attention_backward(const lab::LayerShape& shape, const lab::LayerWeights& weights,
                        const Tensor& rope_angles, const Tensor& input, lab::LayerActivations& kept,
                        const Tensor& gradient, ProcessGroup& ranks) {
  own (&attention_backward)(shape, weights, rope_angles, input, kept, gradient, ranks);
}

void embed_forward(std::span<const int32_t> tokens, const lab::Weight& table,
                   const lab::Range& vocabulary, const Tensor& y, ProcessGroup& ranks) {
  own (&embed_forward)(tokens, table, vocabulary, y, ranks);
}

void embed_backward(std::span<const int32_t> tokens, const Tensor& dy, const lab::Weight& table,
                    const lab::Range& vocabulary) {
  own (&embed_backward)(tokens, dy, table, vocabulary);
}

double causal_lm_loss(const Tensor& logits, const lab::TokenBatch& batch, int64_t total_targets,
                      const lab::Range& vocabulary, ProcessGroup& ranks) {
  return own(&causal_lm_loss)(logits, batch, total_targets, vocabulary, ranks);
}

Mesh make_mesh(ProcessGroup& world, int dp, int pp, int tp) {
  return own(&make_mesh)(world, dp, pp, tp);
}

double clip_gradients(lab::LlamaStage& stage, double max_norm, ProcessGroup& model) {
  return own(&clip_gradients)(stage, max_norm, model);
}

int int_of(const Parcel& input, const std::string& entry) {
  return static_cast<int>(input.number(entry));
}

void note_messages(const ProcessGroup& world, Parcel& result, const std::string& entry,
                   const std::function<void()>& body) {
  const uint64_t last = lab::grading::last_operation(world.recorder());
  body();
  Parcel sent;
  lab::grading::note_operations(world.recorder(), last, sent);
  result.set(entry, sent);
}

namespace {

/// Task 1: both functions in both directions; in the world, or with each rank in a group of its
/// own.
Parcel run_conjugates(const Parcel& input, ProcessGroup& world) {
  std::optional<ProcessGroup> own;
  if (input.number("alone") != 0) own.emplace(world.split(world.rank(), 0, "own"));
  ProcessGroup& ranks = own ? *own : world;
  Parcel result;
  const auto call = [&](const char* name, auto function, Pass pass) {
    const Tensor x = input.tensor("x").clone();
    const auto memory = std::make_shared<lab::MemoryAccount>();
    note_messages(world, result, fmt::format("{}.sent", name), [&] {
      const lab::CountMemory counting(memory);
      function(x, pass, ranks);
    });
    result.set(name, x);
    result.set(fmt::format("{}.copies", name),
               static_cast<double>(memory->peak(lab::MemoryKind::kScratch)));
  };
  call("copy.forward", copy_to_ranks, Pass::kForward);
  call("copy.backward", copy_to_ranks, Pass::kBackward);
  call("sum.forward", sum_over_ranks, Pass::kForward);
  call("sum.backward", sum_over_ranks, Pass::kBackward);
  return result;
}

/// Task 2: a linear layer forward and backward, twice, as in two steps of training: an optimizer
/// changes the weights in their place. The second time counts.
Parcel run_linear(const Parcel& input, ProcessGroup& world) {
  const bool column = input.number("column") != 0;
  const Tensor x = input.tensor("x").clone();
  const lab::Weight weight{.value = input.tensor("weight").clone(),
                           .gradient = input.tensor("leftover").clone(),
                           .rounded = input.tensor("weight").clone()};
  lab::scale(weight.rounded, kRounded);
  const Tensor y = Tensor::empty({x.size(0), weight.value.size(0)});
  const Tensor dy = input.tensor("dy").clone();
  const Tensor dx = Tensor::empty(x.shape());
  lab::scale(weight.value, kWeightsBefore);
  (column ? column_linear_forward : row_linear_forward)(x, weight, y, world);
  (column ? column_linear_backward : row_linear_backward)(dy, x, weight, dx, world);
  x.copy_from(input.tensor("x"));
  weight.value.copy_from(input.tensor("weight"));
  weight.gradient.copy_from(input.tensor("leftover"));
  dy.copy_from(input.tensor("dy"));
  y.fill(static_cast<float>(input.number("before")));
  dx.fill(static_cast<float>(input.number("before")));
  Parcel result;
  note_messages(world, result, "forward.sent", [&] {
    (column ? column_linear_forward : row_linear_forward)(x, weight, y, world);
  });
  result.set("y", y.clone());
  note_messages(world, result, "backward.sent", [&] {
    (column ? column_linear_backward : row_linear_backward)(dy, x, weight, dx, world);
  });
  result.set("dx", dx);
  result.set("dy", dy);
  result.set("dweight", weight.gradient);
  result.set("x", x);
  result.set("weight", weight.value);
  return result;
}

/// Runs a scenario in the group that the input names, if it names one, else in the world.
template <Parcel (*scenario)(const Parcel&, ProcessGroup&)>
Parcel in_group(const Parcel& input, ProcessGroup& world) {
  if (!input.has("group")) return scenario(input, world);
  ProcessGroup group = world.split(int_of(input, "group"), world.rank(), "slices");
  return scenario(input, group);
}

std::vector<double> members_of(const ProcessGroup& group) {
  std::vector<double> members;
  for (int rank = 0; rank < group.size(); ++rank) members.push_back(group.world_rank(rank));
  return members;
}

/// Task 6. Groups that are right on all ranks add up a number.
Parcel run_mesh(const Parcel& input, ProcessGroup& world) {
  Parcel result;
  std::optional<Mesh> mesh;
  note_messages(world, result, "sent", [&] {
    result.set_text("refusal", lab::grading::refusal_of([&] {
                      mesh.emplace(make_mesh(world, int_of(input, "dp"), int_of(input, "pp"),
                                             int_of(input, "tp")));
                    }));
  });
  if (!mesh) return result;
  const auto& [pipeline, stage, slice] = mesh->place;
  result.set("place", std::vector<double>{double(pipeline), double(stage), double(slice)});
  bool right = true;
  ProcessGroup* groups[] = {&mesh->slices, &mesh->pipeline, &mesh->replicas, &mesh->model};
  constexpr const char* kNames[] = {"slices", "pipeline", "replicas", "model"};
  for (size_t g = 0; g < 4; ++g) {
    result.set(kNames[g], members_of(*groups[g]));
    right = right && members_of(*groups[g]) == input.numbers(fmt::format("right.{}", kNames[g]));
  }
  if (!lab::all_true(world, right)) return result;
  for (size_t g = 0; g < 4; ++g)
    result.set(fmt::format("{}.sum", kNames[g]),
               lab::sum_over(*groups[g], std::ldexp(1.0, world.rank())));
  return result;
}

/// Task 6: gradients of a stage's slice, clipped.
Parcel run_clip(const Parcel& input, ProcessGroup& world) {
  const int tp = int_of(input, "tp");
  const int stage_number = world.rank() / tp;
  ProcessGroup slices = world.split(stage_number, world.rank(), "slices");
  const lab::LlamaConfig config = config_of(input);
  const int pp = world.size() / tp;
  const lab::StageSpan span{.first_layer = stage_number * config.layers / pp,
                            .last_layer = (stage_number + 1) * config.layers / pp,
                            .embeds = stage_number == 0,
                            .has_head = stage_number == pp - 1};
  lab::LlamaStage stage = make_stage(config, span, slices, 1);
  for (const lab::Parameter& parameter : stage.named_parameters())
    parameter.gradient.copy_from(
        lab::slice_of(parameter.name, input.tensor(parameter.name), stage.slice()));
  Parcel result;
  note_messages(world, result, "sent", [&] {
    result.set("norm", clip_gradients(stage, input.number("max_norm"), world));
  });
  for (const lab::Parameter& parameter : stage.named_parameters())
    result.set(parameter.name, parameter.gradient.clone());
  return result;
}

}  // namespace
}  // namespace lab10

int main(int argc, char** argv) {
  return lab::grading::rank_main(argc, argv,
                                 {.group = {{"conjugates", lab10::run_conjugates},
                                            {"linear", lab10::in_group<lab10::run_linear>},
                                            {"block", lab10::in_group<lab10::run_block>},
                                            {"embed", lab10::in_group<lab10::run_embed>},
                                            {"loss", lab10::in_group<lab10::run_loss>},
                                            {"mesh", lab10::run_mesh},
                                            {"clip", lab10::run_clip},
                                            {"steps", lab10::run_steps}}});
}
