// Lab 07 · all-reduce from messages: solution.
#include "labs/07_allreduce/allreduce.h"

#include <algorithm>
#include <bit>
#include <vector>

namespace lab07 {
namespace {

/// Chunk `c` of `n`; c may be below 0 or above n: chunks count around the ring.
lab::Tensor chunk(const lab::Tensor& tensor, int c, int n) {
  const int64_t k = (c % n + n) % n;
  return tensor.rows(k * tensor.numel() / n, (k + 1) * tensor.numel() / n);
}

int64_t parts_of(int64_t count, int64_t n) { return (count + n - 1) / n; }

/// One step of the ring: sends to the next rank while it receives from the previous one.
void pass_on(const lab::Tensor& outgoing, const lab::Tensor& incoming, lab::ProcessGroup& group) {
  const int n = group.size();
  lab::Work sent = group.isend(outgoing, (group.rank() + 1) % n);
  group.recv(incoming, (group.rank() + n - 1) % n);
  sent.wait();
}

/// Sends what this rank has to `peer`, and combines it with what `peer` has.
void exchange(const lab::Tensor& tensor, const lab::Tensor& scratch, lab::ReduceOp op, int peer,
              lab::ProcessGroup& group) {
  lab::Work sent = group.isend(tensor, peer);
  group.recv(scratch, peer);
  sent.wait();  // before the tensor changes
  lab::combine(group, tensor, scratch, op);
}

}  // namespace

// Task 1
void reduce_at_root(const lab::Tensor& tensor, lab::ReduceOp op, lab::ProcessGroup& group) {
  if (group.rank() > 0) {
    group.send(tensor, 0);
    group.recv(tensor, 0);
    return;
  }
  if (group.size() == 1) return;
  const lab::Tensor scratch = lab::Tensor::empty(tensor.shape());
  for (int rank = 1; rank < group.size(); ++rank) {
    group.recv(scratch, rank);
    lab::combine(group, tensor, scratch, op);
  }
  for (int rank = 1; rank < group.size(); ++rank) group.send(tensor, rank);
}

// Task 2
void ring_reduce_scatter(const lab::Tensor& tensor, lab::ReduceOp op, lab::ProcessGroup& group) {
  const int n = group.size();
  const int rank = group.rank();
  if (n == 1) return;
  const lab::Tensor scratch = lab::Tensor::empty({parts_of(tensor.numel(), n)});
  for (int step = 1; step < n; ++step) {
    const lab::Tensor mine = chunk(tensor, rank - step - 1, n);
    const lab::Tensor incoming = scratch.rows(0, mine.numel());
    pass_on(chunk(tensor, rank - step, n), incoming, group);
    lab::combine(group, mine, incoming, op);
  }
}

// Task 2
void ring_all_gather(const lab::Tensor& tensor, lab::ProcessGroup& group) {
  const int n = group.size();
  const int rank = group.rank();
  for (int step = 0; step < n - 1; ++step)
    pass_on(chunk(tensor, rank - step, n), chunk(tensor, rank - step - 1, n), group);
}

// Task 2
void ring_all_reduce(const lab::Tensor& tensor, lab::ReduceOp op, lab::ProcessGroup& group) {
  ring_reduce_scatter(tensor, op, group);
  ring_all_gather(tensor, group);
}

// Task 3
void doubling_all_reduce(const lab::Tensor& tensor, lab::ReduceOp op, lab::ProcessGroup& group) {
  const int n = group.size();
  const int rank = group.rank();
  if (n == 1) return;
  const int p = static_cast<int>(std::bit_floor(static_cast<unsigned>(n)));
  if (rank >= p) {
    group.send(tensor, rank - p);
    group.recv(tensor, rank - p);
    return;
  }
  const lab::Tensor scratch = lab::Tensor::empty(tensor.shape());
  const bool has_guest = rank + p < n;
  if (has_guest) {
    group.recv(scratch, rank + p);
    lab::combine(group, tensor, scratch, op);
  }
  for (int distance = 1; distance < p; distance *= 2)
    exchange(tensor, scratch, op, rank ^ distance, group);
  if (has_guest) group.send(tensor, rank + p);
}

// Task 4
Hosts make_hosts(lab::ProcessGroup& world, int ranks_per_host) {
  const int host = world.rank() / ranks_per_host;
  const int place = world.rank() % ranks_per_host;
  return {.inside = world.split(host, world.rank(), "inside"),
          .across = world.split(place, world.rank(), "across")};
}

// Task 4
void hierarchical_all_reduce(const lab::Tensor& tensor, lab::ReduceOp op, Hosts& hosts) {
  ring_reduce_scatter(tensor, op, hosts.inside);
  ring_all_reduce(chunk(tensor, hosts.inside.rank(), hosts.inside.size()), op, hosts.across);
  ring_all_gather(tensor, hosts.inside);
}

// Task 5
Choice choose(int ranks, int64_t elements, const lab::CostModel& costs) {
  const int per_host = costs.ranks_per_host == 0 ? ranks : costs.ranks_per_host;
  const int hosts = ranks / per_host;
  const lab::LinkCost& slowest = hosts > 1 ? costs.between : costs.inside;
  const auto message = [](const lab::LinkCost& link, int64_t count) {
    return link.alpha + link.beta * 4 * static_cast<double>(count);
  };
  const auto addition = [&](int64_t count) { return costs.gamma * static_cast<double>(count); };
  const auto ring = [&](const lab::LinkCost& link, int n, int64_t count) {
    const int64_t largest = parts_of(count, n);
    return (n - 1) * (2 * message(link, largest) + addition(largest));
  };
  const double whole = message(slowest, elements);
  const double sum = addition(elements);
  const int doublings = std::bit_width(static_cast<unsigned>(ranks)) - 1;
  const bool folds = !std::has_single_bit(static_cast<unsigned>(ranks));

  Choice choice;
  choice.seconds = {
      (ranks - 1) * (2 * whole + sum),
      ring(slowest, ranks, elements),
      doublings * (whole + sum) + (folds ? 2 * whole + sum : 0),
      ring(costs.inside, per_host, elements) +
          ring(costs.between, hosts, parts_of(elements, per_host)),
  };
  const auto fastest = std::ranges::min_element(choice.seconds);
  choice.best = static_cast<Algorithm>(fastest - choice.seconds.begin());
  return choice;
}

}  // namespace lab07
