// The rank program of lab 07: the contract's functions, and the scenarios that call them.
#include <string>
#include <utility>

#include "common/error.h"
#include "labs/07_allreduce/allreduce.h"
#include "tests/grading/implementation.h"
#include "tests/grading/rank_main.h"
#include "tests/labs/07_allreduce/rank_scratch.h"

using lab::ProcessGroup;
using lab::ReduceOp;
using lab::Tensor;
using lab::grading::is_given;
using lab::grading::own;
using lab::grading::Parcel;

namespace lab07 {
namespace given_2 {

// In the place of the student's for task 4.

Tensor chunk(const Tensor& tensor, int c, int n) {
  const int64_t k = (c + 2 * n) % n;
  return tensor.rows(k * tensor.numel() / n, (k + 1) * tensor.numel() / n);
}

template <typename Receive>
void go_around(const Tensor& tensor, int first, ProcessGroup& group, const Receive& receive) {
  const int n = group.size();
  for (int step = 0; step < n - 1; ++step) {
    const int c = group.rank() - first - step;
    lab::Work sent = group.isend(chunk(tensor, c, n), (group.rank() + 1) % n);
    receive(chunk(tensor, c - 1, n), (group.rank() + n - 1) % n);
    sent.wait();
  }
}

LAB_GIVEN void ring_reduce_scatter(const Tensor& tensor, ReduceOp op, ProcessGroup& group) {
  go_around(tensor, 1, group, [&](const Tensor& mine, int from) {
    const Tensor scratch = Tensor::empty(mine.shape());
    group.recv(scratch, from);
    lab::combine(group, mine, scratch, op);
  });
}

LAB_GIVEN void ring_all_gather(const Tensor& tensor, ProcessGroup& group) {
  go_around(tensor, 0, group, [&](const Tensor& mine, int from) { group.recv(mine, from); });
}

}  // namespace given_2

// The contract's functions.

void reduce_at_root(const Tensor& tensor, ReduceOp op, ProcessGroup& group) {
  return own(&reduce_at_root)(tensor, op, group);
}

void ring_reduce_scatter(const Tensor& tensor, ReduceOp op, ProcessGroup& group) {
  if (is_given("2")) return given_2::ring_reduce_scatter(tensor, op, group);
  return own(&ring_reduce_scatter)(tensor, op, group);
}

void ring_all_gather(const Tensor& tensor, ProcessGroup& group) {
  if (is_given("2")) return given_2::ring_all_gather(tensor, group);
  return own(&ring_all_gather)(tensor, group);
}

void ring_all_reduce(const Tensor& tensor, ReduceOp op, ProcessGroup& group) {
  if (!is_given("2")) return own(&ring_all_reduce)(tensor, op, group);
  given_2::ring_reduce_scatter(tensor, op, group);
  given_2::ring_all_gather(tensor, group);
}

void doubling_all_reduce(const Tensor& tensor, ReduceOp op, ProcessGroup& group) {
  return own(&doubling_all_reduce)(tensor, op, group);
}

Hosts make_hosts(ProcessGroup& world, int ranks_per_host) {
  return own(&make_hosts)(world, ranks_per_host);
}

void hierarchical_all_reduce(const Tensor& tensor, ReduceOp op, Hosts& hosts) {
  return own(&hierarchical_all_reduce)(tensor, op, hosts);
}

Choice choose(int ranks, int64_t elements, const lab::CostModel& costs) {
  return own(&choose)(ranks, elements, costs);
}

namespace {

double clock_ns(const ProcessGroup& world) {
  return static_cast<double>(world.recorder().snapshot().taken_ns);
}

/// Calls one of the functions on a vector with a fence on each side, and notes the result, how much
/// scratch it took and kept, and when it began and ended by this rank's clock.
template <typename Function>
Parcel run_fenced(const Parcel& input, const ProcessGroup& world, const Function& function) {
  constexpr float kFence = 12345.0F;
  constexpr int64_t kFenceLength = 3;
  const Tensor& numbers = input.tensor("numbers");
  const int64_t end = kFenceLength + numbers.numel();
  const Tensor block = Tensor::empty({end + kFenceLength});
  block.fill(kFence);
  const Tensor tensor = block.rows(kFenceLength, end);
  tensor.copy_from(numbers);
  const double begin_ns = clock_ns(world);
  scenario::count_scratch();
  function(tensor);
  const size_t scratch = scenario::most_scratch();
  const size_t kept = scenario::kept_scratch();

  Parcel result;
  result.set("begin_ns", begin_ns);
  result.set("end_ns", clock_ns(world));
  result.set("scratch", static_cast<double>(scratch));
  result.set("kept", static_cast<double>(kept));
  result.set("numbers", tensor.clone());
  bool fence_broken = false;
  for (int64_t i = 0; i < kFenceLength; ++i)
    fence_broken = fence_broken || block.data()[i] != kFence || block.data()[end + i] != kFence;
  result.set("fence_broken", fence_broken ? 1.0 : 0.0);
  return result;
}

/// Runs `function` in the world, or in a group of its own if the input says so: ranks with the same
/// "color", numbered by "key". Those of color 0 take no part.
template <typename Function>
Parcel run_in_group(const Parcel& input, ProcessGroup& world, const Function& function) {
  if (!input.has("color")) return function(world);
  const int color = static_cast<int>(input.number("color"));
  ProcessGroup group = world.split(color, static_cast<int>(input.number("key")), "part");
  return color == 0 ? Parcel() : function(group);
}

/// One of the functions that take a tensor and a group.
Parcel run_reduction(const Parcel& input, ProcessGroup& world) {
  const std::string name = input.text("function");
  const auto op = static_cast<ReduceOp>(static_cast<int>(input.number("op")));
  return run_in_group(input, world, [&](ProcessGroup& group) {
    return run_fenced(input, world, [&](const Tensor& tensor) {
      if (name == "reduce_at_root") return reduce_at_root(tensor, op, group);
      if (name == "ring_reduce_scatter") return ring_reduce_scatter(tensor, op, group);
      if (name == "ring_all_gather") return ring_all_gather(tensor, group);
      if (name == "ring_all_reduce") return ring_all_reduce(tensor, op, group);
      if (name == "doubling_all_reduce") return doubling_all_reduce(tensor, op, group);
      lab::fail("there is no function {}", name);
    });
  });
}

/// Task 2, on more elements than a parcel should carry: the rank makes the numbers and checks them.
Parcel run_large(const Parcel& input, ProcessGroup& world) {
  const Tensor tensor = Tensor::empty({static_cast<int64_t>(input.number("elements"))});
  const auto whole = [](int64_t i) { return static_cast<float>(i % 1021); };  // sums are exact
  for (int64_t i = 0; i < tensor.numel(); ++i)
    tensor.data()[i] = whole(i) + static_cast<float>(world.rank());
  ring_all_reduce(tensor, ReduceOp::kSum, world);
  const auto n = static_cast<float>(world.size());
  int64_t right = 0;
  while (right < tensor.numel() && tensor.data()[right] == n * whole(right) + n * (n - 1) / 2)
    ++right;
  Parcel result;
  result.set("right", static_cast<double>(right));
  return result;
}

/// Task 4.
Parcel run_hierarchical(const Parcel& input, ProcessGroup& world) {
  const auto op = static_cast<ReduceOp>(static_cast<int>(input.number("op")));
  return run_in_group(input, world, [&](ProcessGroup& group) {
    Hosts hosts = make_hosts(group, static_cast<int>(input.number("ranks_per_host")));
    std::optional<Hosts> other;
    if (input.has("other_hosts"))
      other.emplace(make_hosts(group, static_cast<int>(input.number("other_hosts"))));
    lab::require(input.text("function") != "leaves", "the test ends this rank");
    Parcel result = run_fenced(input, group, [&](const Tensor& tensor) {
      return hierarchical_all_reduce(tensor, op, hosts);
    });
    const auto members = [](const ProcessGroup& hosts_group) {
      std::vector<double> ranks;
      for (int r = 0; r < hosts_group.size(); ++r) ranks.push_back(hosts_group.world_rank(r));
      return ranks;
    };
    result.set("inside", members(hosts.inside));
    result.set("across", members(hosts.across));
    return result;
  });
}

/// Task 5.
Parcel run_choose(const Parcel& input) {
  const std::vector<double> costs = input.numbers("costs");
  const Choice choice = choose(static_cast<int>(input.number("ranks")),
                               static_cast<int64_t>(input.number("elements")),
                               {.inside = {.alpha = costs[0], .beta = costs[1]},
                                .between = {.alpha = costs[2], .beta = costs[3]},
                                .ranks_per_host = static_cast<int>(costs[4]),
                                .gamma = costs[5]});
  Parcel result;
  result.set("seconds", std::vector<double>(choice.seconds.begin(), choice.seconds.end()));
  result.set("best", static_cast<double>(choice.best));
  return result;
}

}  // namespace
}  // namespace lab07

int main(int argc, char** argv) {
  return lab::grading::rank_main(argc, argv,
                                 {.alone = {{"choose", lab07::run_choose}},
                                  .group = {{"reduction", lab07::run_reduction},
                                            {"large", lab07::run_large},
                                            {"hierarchical", lab07::run_hierarchical}}});
}
