#include "common/comm/sim/sim_clock.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "common/error.h"

namespace lab {

SimClock::SimClock(const CostModel& costs, int ranks)
    : costs_(costs), ranks_(static_cast<size_t>(ranks)) {}

void SimClock::compute(int rank, double seconds) {
  require(seconds >= 0, "advance_clock: {} s, less than 0", seconds);
  at(rank).now += seconds;
  at(rank).computed += seconds;
}

void SimClock::wait_until(int rank, double time) { at(rank).now = std::max(at(rank).now, time); }

bool SimClock::run_next() {
  if (waiting_.empty()) return false;
  const auto turn = [this](const Transfer& transfer) {
    return std::tuple(start_of(transfer), transfer.members[0], transfer.order);
  };
  const auto next = std::ranges::min_element(waiting_, {}, turn);
  const Transfer transfer = std::move(*next);
  waiting_.erase(next);

  const Links links = links_of(transfer);
  double round = 0;  // as long as its slowest link
  for (const auto& [from, to] : links)
    round = std::max(round, costs_.link(from, to).seconds(transfer.bytes));
  const double start = start_of(transfer);
  const double end = start + transfer.rounds * round;
  for (const auto& [from, to] : links) {
    at(from).out_free = at(to).in_free = end;
    traffic_.push_back({from, to, transfer.rounds * transfer.bytes, start, end});
  }
  transfer.done(start, end);
  return true;
}

SimClock::Links SimClock::links_of(const Transfer& transfer) {
  if (!transfer.collective) return {{transfer.members[0], transfer.members[1]}};
  Links links;
  const size_t size = transfer.members.size();
  for (size_t i = 0; i < size; ++i)
    links.emplace_back(transfer.members[i], transfer.members[(i + 1) % size]);
  return links;
}

double SimClock::start_of(const Transfer& transfer) const {
  double start = transfer.posted;
  for (const auto& [from, to] : links_of(transfer))
    start = std::max({start, at(from).out_free, at(to).in_free});
  return start;
}

}  // namespace lab
