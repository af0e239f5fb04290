// What the contract says about messages, scratch and time.
#include <algorithm>
#include <bit>

#include "common/error.h"
#include "tests/labs/07_allreduce/reduction.h"

namespace lab07 {
namespace {

using Messages = std::vector<Message>;

int64_t ceiling(int64_t a, int64_t b) { return (a + b - 1) / b; }
int power_below(int n) { return static_cast<int>(std::bit_floor(static_cast<unsigned>(n))); }
int doublings(int n) { return std::bit_width(static_cast<unsigned>(n)) - 1; }

/// All chunks but `kept`, to the next rank of the ring that consists of `members`.
void add_ring(Messages& sends, const std::vector<int>& members, int self, int64_t elements,
              int kept) {
  const int n = static_cast<int>(members.size());
  for (int k = 0; k < n; ++k) {
    const auto [first, last] = chunk_of(elements, k, n);
    if (k != kept % n)
      sends.push_back({members[static_cast<size_t>((self + 1) % n)],
                       static_cast<uint64_t>(4 * (last - first))});
  }
}

std::vector<int> numbered(int first, int step, int count) {
  std::vector<int> ranks;
  for (int i = 0; i < count; ++i) ranks.push_back(first + i * step);
  return ranks;
}

Messages sends_of(const Case& c, int rank, int ranks) {
  const auto whole = static_cast<uint64_t>(4 * c.elements);
  const std::vector<int> all = numbered(0, 1, ranks);
  Messages sends;
  if (c.function == "reduce_at_root") {
    for (int to = 1; rank == 0 && to < ranks; ++to) sends.push_back({to, whole});
    if (rank > 0) sends.push_back({0, whole});
  }
  if (c.function == "ring_reduce_scatter" || c.function == "ring_all_reduce")
    add_ring(sends, all, rank, c.elements, rank);
  if (c.function == "ring_all_gather" || c.function == "ring_all_reduce")
    add_ring(sends, all, rank, c.elements, rank + 1);
  if (c.function == "doubling_all_reduce") {
    const int p = power_below(ranks);
    for (int distance = 1; rank < p && distance < p; distance *= 2)
      sends.push_back({rank ^ distance, whole});
    if (rank >= p) sends.push_back({rank - p, whole});
    if (rank + p < ranks) sends.push_back({rank + p, whole});
  }
  if (c.function == "hierarchical_all_reduce") {
    const int m = c.ranks_per_host;
    const int place = rank % m;
    const std::vector<int> inside = numbered(rank - place, 1, m);
    const std::vector<int> across = numbered(place, m, ranks / m);
    const auto [first, last] = chunk_of(c.elements, place, m);
    add_ring(sends, inside, place, c.elements, place);
    add_ring(sends, across, rank / m, last - first, rank / m);
    add_ring(sends, across, rank / m, last - first, rank / m + 1);
    add_ring(sends, inside, place, c.elements, place + 1);
  }
  return sends;
}

/// How often the rank combines.
int additions_of(const Case& c, int rank, int ranks) {
  const int p = power_below(ranks);
  if (c.function == "reduce_at_root") return rank == 0 ? ranks - 1 : 0;
  if (c.function == "ring_all_gather") return 0;
  if (c.function == "doubling_all_reduce")
    return rank < p ? doublings(ranks) + (rank + p < ranks ? 1 : 0) : 0;
  if (c.function == "hierarchical_all_reduce")
    return c.ranks_per_host - 1 + ranks / c.ranks_per_host - 1;
  return ranks - 1;
}

}  // namespace

std::pair<int64_t, int64_t> chunk_of(int64_t elements, int k, int n) {
  return {k * elements / n, (k + 1) * elements / n};
}

Promise promise_of(const Case& c, int rank, int ranks) {
  const int p = power_below(ranks);
  int64_t scratch = 0;
  if (c.function == "reduce_at_root") scratch = rank == 0 ? c.elements : 0;
  if (c.function == "ring_reduce_scatter" || c.function == "ring_all_reduce")
    scratch = ceiling(c.elements, ranks);
  if (c.function == "doubling_all_reduce") scratch = rank < p ? c.elements : 0;
  if (c.function == "hierarchical_all_reduce") scratch = ceiling(c.elements, c.ranks_per_host);
  return {.sends = sends_of(c, rank, ranks),
          .scratch = static_cast<uint64_t>(4 * scratch),
          .additions = additions_of(c, rank, ranks)};
}

double seconds_of(const Case& c, int ranks, const lab::CostModel& costs) {
  const auto half = [&](const lab::LinkCost& link, int n, int64_t elements, bool adds) {
    const auto largest = static_cast<double>(ceiling(elements, n));
    return (n - 1) * (link.seconds(4 * largest) + (adds ? costs.gamma * largest : 0));
  };
  const auto ring = [&](const lab::LinkCost& link, int n, int64_t elements) {
    return half(link, n, elements, true) + half(link, n, elements, false);
  };
  const double message = costs.inside.seconds(4 * static_cast<double>(c.elements));
  const double addition = costs.gamma * static_cast<double>(c.elements);
  if (c.function == "reduce_at_root") return (ranks - 1) * (2 * message + addition);
  if (c.function == "ring_reduce_scatter") return half(costs.inside, ranks, c.elements, true);
  if (c.function == "ring_all_gather") return half(costs.inside, ranks, c.elements, false);
  if (c.function == "ring_all_reduce") return ring(costs.inside, ranks, c.elements);
  if (c.function == "doubling_all_reduce")
    return doublings(ranks) * (message + addition) +
           (power_below(ranks) < ranks ? 2 * message + addition : 0);
  const int m = c.ranks_per_host;
  return ring(costs.inside, m, c.elements) + ring(costs.between, ranks / m, ceiling(c.elements, m));
}

}  // namespace lab07
