// The rank program of lab 06: the contract's functions, and the scenarios of tasks 1, 2, 3, 4, 7.
#include <fmt/format.h>

#include <optional>

#include "common/comm/agreement.h"
#include "tests/grading/implementation.h"
#include "tests/grading/rank_main.h"
#include "tests/grading/refusal.h"
#include "tests/grading/training_rank.h"
#include "tests/labs/06_hybrid_2x3/rank_steps.h"

using lab::ProcessGroup;
using lab::Tensor;
using lab::TokenBatch;
using lab::grading::is_given;
using lab::grading::own;
using lab::grading::Parcel;

namespace lab06 {

namespace given_1 {
LAB_GIVEN Place place_of(int rank, int pp) { return {.pipeline = rank / pp, .stage = rank % pp}; }
}  // namespace given_1

// The contract's functions.

Place place_of(int rank, int pp) {
  if (is_given("1")) return given_1::place_of(rank, pp);
  return own(&place_of)(rank, pp);
}

Mesh make_mesh(ProcessGroup& world, int dp, int pp) {
  if (is_given("2")) return given_2::make_mesh(world, pp);
  return own(&make_mesh)(world, dp, pp);
}

std::vector<int64_t> shard(std::span<const int64_t> order, const Place& place, int dp) {
  return own(&shard)(order, place, dp);
}

int64_t total_targets(const lab::LlamaStage& stage, std::span<const TokenBatch> microbatches,
                      Mesh& mesh) {
  if (is_given("4")) return given_4::total_targets(stage, microbatches, mesh);
  return own(&total_targets)(stage, microbatches, mesh);
}

double compute_gradients(lab::LlamaStage& stage, const lab::Schedule& schedule,
                         std::span<const TokenBatch> microbatches, const LossFunction& loss,
                         Mesh& mesh) {
  if (is_given("5")) return given_5::compute_gradients(stage, schedule, microbatches, loss, mesh);
  return own(&compute_gradients)(stage, schedule, microbatches, loss, mesh);
}

double train_step(lab::LlamaStage& stage, lab::Optimizer& optimizer, const lab::Schedule& schedule,
                  std::span<const TokenBatch> microbatches, const LossFunction& loss,
                  float learning_rate, double max_gradient_norm, Mesh& mesh) {
  return own(&train_step)(stage, optimizer, schedule, microbatches, loss, learning_rate,
                          max_gradient_norm, mesh);
}

double mean_loss(double loss, Mesh& mesh) { return own(&mean_loss)(loss, mesh); }

namespace {

/// Task 1.
Parcel run_places(const Parcel& input) {
  std::vector<double> places;
  for (int rank = 0; rank < int_of(input, "dp") * int_of(input, "pp"); ++rank) {
    const Place place = place_of(rank, int_of(input, "pp"));
    places.insert(places.end(), {double(place.pipeline), double(place.stage)});
  }
  Parcel result;
  result.set("places", places);
  return result;
}

std::vector<double> members_of(const ProcessGroup& group) {
  std::vector<double> members;
  for (int rank = 0; rank < group.size(); ++rank) members.push_back(group.world_rank(rank));
  return members;
}

/// Two numbers that only a group with the right members in the right order can give: a sum over
/// all, and what the member before this one has sent.
std::vector<double> talk(ProcessGroup& group, int own) {
  const Tensor sum = Tensor::from({static_cast<float>(1 << own)}, {1});
  group.all_reduce(sum);
  const Tensor got = Tensor::from({static_cast<float>(own)}, {1});
  if (const int size = group.size(); size > 1) {
    const Tensor sent = got.clone();
    lab::Work work = group.isend(sent, (group.rank() + 1) % size, 5);
    group.recv(got, (group.rank() + size - 1) % size, 5);
    work.wait();
  }
  return {sum.data()[0], got.data()[0]};
}

/// The members of every group that this rank has been in, by number, in the order of their making.
std::vector<double> groups_made(const ProcessGroup& world) {
  std::vector<double> made;
  for (const lab::GroupRecord& group : world.recorder().snapshot().groups)
    made.push_back(static_cast<double>(group.members));
  return made;
}

/// Task 2. Over groups that are right on all ranks they talk.
Parcel run_mesh(const Parcel& input, ProcessGroup& world) {
  const int dp = int_of(input, "dp");
  const int pp = int_of(input, "pp");
  const size_t groups_before = groups_made(world).size();
  Parcel result;
  std::optional<Mesh> mesh;
  note_messages(world, result, [&] {
    result.set_text("refusal",
                    lab::grading::refusal_of([&] { mesh.emplace(make_mesh(world, dp, pp)); }));
  });
  if (!mesh || dp * pp != world.size()) return result;
  const Place place{.pipeline = world.rank() / pp, .stage = world.rank() % pp};
  std::vector<double> made = groups_made(world);
  made.erase(made.begin(), made.begin() + static_cast<std::ptrdiff_t>(groups_before));
  result.set("made", made);
  result.set("place", std::vector<double>{double(mesh->place.pipeline), double(mesh->place.stage)});
  result.set("pipeline", members_of(mesh->pipeline));
  result.set("replicas", members_of(mesh->replicas));
  std::vector<double> pipeline;
  std::vector<double> replicas;
  for (int s = 0; s < pp; ++s) pipeline.push_back(place.pipeline * pp + s);
  for (int d = 0; d < dp; ++d) replicas.push_back(d * pp + place.stage);
  if (!lab::all_true(
          world, members_of(mesh->pipeline) == pipeline && members_of(mesh->replicas) == replicas))
    return result;
  result.set("pipeline.talk", talk(mesh->pipeline, world.rank()));
  result.set("replicas.talk", talk(mesh->replicas, world.rank()));
  return result;
}

/// Task 3, twice. The orders of all calls lie in the same memory, as those of a trainer's epochs
/// do.
Parcel run_shard(const Parcel& input, ProcessGroup& world) {
  thread_local std::vector<int64_t> order;
  const std::vector<double> sequences = input.numbers("order");
  order.assign(sequences.begin(), sequences.end());
  const int pp = int_of(input, "pp");
  Parcel result;
  for (const char* entry : {"share", "again"}) {
    const std::vector<int64_t> share = shard(
        order, {.pipeline = world.rank() / pp, .stage = world.rank() % pp}, int_of(input, "dp"));
    result.set(entry, std::vector<double>(share.begin(), share.end()));
  }
  return result;
}

/// Task 4. With "long_row" that many tokens in a single row, with "no_tokens" none.
Parcel run_total_targets(const Parcel& input, ProcessGroup& world) {
  Mesh mesh = given_2::make_mesh(world, int_of(input, "pp"));
  const lab::LlamaStage stage(lab::grading::model_of(input), lab::grading::span_of(input),
                              lab::Device::kCpu, 1);
  std::vector<TokenBatch> microbatches = microbatches_of(input);
  if (input.has("long_row")) {
    const auto length = static_cast<int64_t>(input.number("long_row"));
    microbatches = {{1, length, std::vector<int32_t>(static_cast<size_t>(length), 1)}};
  }
  if (input.has("no_tokens"))
    for (TokenBatch& batch : microbatches) batch.tokens.clear();
  Parcel result;
  note_messages(world, result, [&] {
    result.set("total", static_cast<double>(total_targets(stage, microbatches, mesh)));
  });
  return result;
}

/// Task 7.
Parcel run_mean_loss(const Parcel& input, ProcessGroup& world) {
  Mesh mesh = given_2::make_mesh(world, int_of(input, "pp"));
  Parcel result;
  note_messages(world, result, [&] { result.set("mean", mean_loss(input.number("loss"), mesh)); });
  return result;
}

}  // namespace
}  // namespace lab06

int main(int argc, char** argv) {
  return lab::grading::rank_main(argc, argv,
                                 {.alone = {{"places", lab06::run_places}},
                                  .group = {{"mesh", lab06::run_mesh},
                                            {"shard", lab06::run_shard},
                                            {"total_targets", lab06::run_total_targets},
                                            {"gradients", lab06::run_gradients},
                                            {"gradients_refused", lab06::run_gradients_refused},
                                            {"train_step", lab06::run_train_step},
                                            {"mean_loss", lab06::run_mean_loss}}});
}
