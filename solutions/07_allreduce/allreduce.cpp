// Lab 07 · all-reduce from messages: solution.
#include "labs/07_allreduce/allreduce.h"

#include <algorithm>
#include <bit>
#include <deque>
#include <optional>

namespace lab07 {
namespace {

/// Chunk `c` of `n`; c may be below 0 or above n: chunks count around the ring.
lab::Tensor chunk(const lab::Tensor& tensor, int64_t c, int64_t n) {
  const int64_t k = (c % n + n) % n;
  return tensor.rows(k * tensor.numel() / n, (k + 1) * tensor.numel() / n);
}

int64_t parts_of(int64_t count, int64_t n) { return (count + n - 1) / n; }

/// Half of the ring: in step s = 0, 1 ... n - 2, every rank sends its chunk `first` - s to the next
/// rank, and receives chunk `first` - s - 1 from the previous one, to combine it with its own or,
/// without `op`, to keep it.
///
/// A chunk travels in q segments: chunk c consists of chunks c q, c q + 1 ... of n q. Two are under
/// way at a time, so that one travels while another is combined, in the cache.
void go_around(const lab::Tensor& tensor, int first, std::optional<lab::ReduceOp> op,
               lab::ProcessGroup& group) {
  const int n = group.size();
  const int next = (group.rank() + 1) % n;
  const int previous = (group.rank() + n - 1) % n;
  const int64_t q = std::max<int64_t>(1, parts_of(parts_of(tensor.numel(), n), kSegment));
  const int64_t places = std::min<int64_t>(q, 2);
  const int64_t longest = parts_of(tensor.numel(), n * q);
  const lab::Tensor scratch = lab::Tensor::empty({op ? places * longest : 0});

  struct Passing {
    lab::Tensor mine;
    lab::Tensor incoming;
    lab::Work received;
    lab::Work sent;
  };
  std::deque<Passing> under_way;
  const auto complete_oldest = [&] {
    Passing& oldest = under_way.front();
    oldest.received.wait();
    if (op) lab::combine(group, oldest.mine, oldest.incoming, *op);
    oldest.sent.wait();
    under_way.pop_front();
  };
  for (int64_t k = 0; k < (n - 1) * q; ++k) {
    if (std::ssize(under_way) == places) complete_oldest();
    const int64_t outgoing = (first - k / q) * q + k % q;
    const lab::Tensor mine = chunk(tensor, outgoing - q, n * q);
    const int64_t place = k % places * longest;
    const lab::Tensor incoming = op ? scratch.rows(place, place + mine.numel()) : mine;
    under_way.push_back({.mine = mine,
                         .incoming = incoming,
                         .received = group.irecv(incoming, previous),
                         .sent = group.isend(chunk(tensor, outgoing, n * q), next)});
  }
  while (!under_way.empty()) complete_oldest();
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
  go_around(tensor, group.rank() - 1, op, group);
}

// Task 2
void ring_all_gather(const lab::Tensor& tensor, lab::ProcessGroup& group) {
  go_around(tensor, group.rank(), std::nullopt, group);
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
