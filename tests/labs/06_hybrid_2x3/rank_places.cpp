// Places, groups and shares: tasks 1, 2 and 3.
#include <fmt/format.h>

#include "common/tensor/todo.h"
#include "tests/labs/06_hybrid_2x3/rank_mesh.h"
#include "tests/labs/06_hybrid_2x3/rank_scenarios.h"

namespace lab06 {

using lab::ProcessGroup;
using lab::Tensor;
using lab::grading::Parcel;

namespace {

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

}  // namespace

Parcel run_places(const Parcel& input) {
  std::vector<double> places;
  for (int rank = 0; rank < int_of(input, "ranks"); ++rank) {
    const Place place = place_of(rank, int_of(input, "pp"));
    places.push_back(place.pipeline);
    places.push_back(place.stage);
  }
  Parcel result;
  result.set("places", places);
  return result;
}

Parcel run_shards(const Parcel& input) {
  std::vector<int64_t> order;
  for (double sequence : input.numbers("order")) order.push_back(static_cast<int64_t>(sequence));
  const int dp = int_of(input, "dp");
  Parcel result;
  for (const char* call : {"share", "again"})
    for (int d = 0; d < dp; ++d)
      for (int s = 0; s < int_of(input, "pp"); ++s) {
        const std::vector<int64_t> share = shard(order, {.pipeline = d, .stage = s}, dp);
        result.set(fmt::format("{}.{}.{}", call, d, s),
                   std::vector<double>(share.begin(), share.end()));
      }
  return result;
}

Parcel run_mesh(const Parcel& input, ProcessGroup& world) {
  Mesh mesh = make_mesh(world, int_of(input, "dp"), int_of(input, "pp"));
  Parcel result;
  result.set("place", std::vector<double>{static_cast<double>(mesh.place.pipeline),
                                          static_cast<double>(mesh.place.stage)});
  result.set("pipeline", members_of(mesh.pipeline));
  result.set("replicas", members_of(mesh.replicas));
  if (!input.has("talk")) return result;
  result.set("pipeline.talk", talk(mesh.pipeline, world.rank()));
  result.set("replicas.talk", talk(mesh.replicas, world.rank()));
  return result;
}

Parcel run_mesh_refusal(const Parcel& input, ProcessGroup& world) {
  Parcel result;
  result.set_text("error", "");
  try {
    make_mesh(world, int_of(input, "dp"), int_of(input, "pp"));
  } catch (const lab::NotImplemented&) {
    throw;
  } catch (const lab::BrokenOff&) {
    throw;
  } catch (const lab::Error& error) {
    result.set_text("error", error.what());
  }
  result.set("operations", operations_of(world, 0));
  return result;
}

}  // namespace lab06
