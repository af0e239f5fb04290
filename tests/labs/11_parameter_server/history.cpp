// The contract's server, next to what was logged.
#include "tests/labs/11_parameter_server/history.h"

#include <algorithm>
#include <utility>

namespace lab11 {

std::vector<Record> read_log(const std::vector<double>& log) {
  std::vector<Record> history;
  size_t at = 0;
  const auto next = [&] { return static_cast<int64_t>(log.at(at++)); };
  while (at < log.size()) {
    Record r;
    r.server = static_cast<size_t>(next());
    r.operation = static_cast<entries::Operation>(next());
    r.argument = next();
    r.samples = next();
    for (int64_t i = 0; i < entries::kElements; ++i) r.gradient.push_back(log.at(at++));
    r.yes = next() != 0;
    r.ticket = next();
    r.item = next();
    r.ticket_version = next();
    r.state.version = next();
    r.state.gradients = next();
    r.state.samples = next();
    r.state.next_item = next();
    r.state.next_ticket = next();
    r.updates = next();
    r.push_changed = next() != 0;
    for (int64_t left = next(); left > 0; --left) {
      const int64_t ticket = next();
      LeaseRecord lease;
      lease.worker = next();
      lease.item = next();
      lease.version = next();
      r.state.leases[ticket] = lease;
    }
    for (int64_t left = next(); left > 0; --left) r.state.returned.insert(next());
    history.push_back(std::move(r));
  }
  return history;
}

bool Oracle::push(const Record& call) {
  const Term term{static_cast<double>(call.samples), call.gradient};
  const auto found = state_.leases.find(call.argument);
  if (found == state_.leases.end()) {
    refused_.push_back(term);
    return false;
  }
  stalest_ = std::max(stalest_, state_.version - found->second.version);
  state_.leases.erase(found);
  counted_.insert(call.argument);
  pending_.push_back(term);
  state_.samples += call.samples;
  if (++state_.gradients < n_) return true;
  std::vector<double> mean(entries::kElements, 0.0);
  for (const Term& each : pending_)
    for (size_t i = 0; i < mean.size(); ++i) mean[i] += each.samples * each.gradient[i];
  for (double& value : mean)
    value = state_.samples > 0 ? value / static_cast<double>(state_.samples) : 0.0;
  means_.push_back(mean);
  terms_.push_back(std::exchange(pending_, {}));
  state_.samples = 0;
  state_.gradients = 0;
  ++state_.version;
  return true;
}

bool Oracle::may_start() const {
  int64_t oldest = state_.version;
  for (const auto& [ticket, lease] : state_.leases) oldest = std::min(oldest, lease.version);
  const int64_t before = state_.gradients + static_cast<int64_t>(state_.leases.size());
  return state_.version + before / n_ - oldest <= s_;
}

std::optional<int64_t> Oracle::pull(int64_t worker) {
  leave(worker);
  if (!may_start()) return {};
  int64_t item = state_.next_item;
  if (!state_.returned.empty()) {
    item = *state_.returned.begin();
    state_.returned.erase(item);
  } else if (item < items_) {
    ++state_.next_item;
  } else {
    return {};
  }
  state_.leases[state_.next_ticket++] = {worker, item, state_.version};
  return item;
}

void Oracle::leave(int64_t worker) {
  for (auto lease = state_.leases.begin(); lease != state_.leases.end();) {
    if (lease->second.worker == worker) {
      state_.returned.insert(lease->second.item);
      lease = state_.leases.erase(lease);
    } else {
      ++lease;
    }
  }
}

}  // namespace lab11
