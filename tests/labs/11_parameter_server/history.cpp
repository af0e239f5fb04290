// The contract's server, next to what was logged.
#include "tests/labs/11_parameter_server/history.h"

#include <algorithm>
#include <utility>

namespace lab11 {
namespace {

/// Reads a list of numbers from its beginning.
class Reader {
 public:
  explicit Reader(const std::vector<double>& numbers) : numbers_(numbers) {}

  bool at_end() const { return at_ == numbers_.size(); }
  int64_t next() { return static_cast<int64_t>(numbers_.at(at_++)); }
  std::vector<double> list() {
    std::vector<double> values;
    for (int64_t left = next(); left > 0; --left) values.push_back(numbers_.at(at_++));
    return values;
  }

  State state() {
    State state;
    state.version = next();
    state.gradients = next();
    state.samples = next();
    state.next_item = next();
    state.next_ticket = next();
    for (int64_t left = next(); left > 0; --left) {
      const int64_t ticket = next();
      LeaseRecord& lease = state.leases[ticket];
      lease.worker = next();
      lease.item = next();
      lease.version = next();
    }
    for (int64_t left = next(); left > 0; --left) state.returned.insert(next());
    state.sum = list();
    return state;
  }

 private:
  const std::vector<double>& numbers_;
  size_t at_ = 0;
};

}  // namespace

void write_state(const State& state, std::vector<double>& numbers) {
  const auto add = [&](auto... values) { (numbers.push_back(static_cast<double>(values)), ...); };
  add(state.version, state.gradients, state.samples, state.next_item, state.next_ticket);
  add(state.leases.size());
  for (const auto& [ticket, lease] : state.leases)
    add(ticket, lease.worker, lease.item, lease.version);
  add(state.returned.size());
  for (const int64_t item : state.returned) add(item);
  add(state.sum.size());
  for (const double value : state.sum) add(value);
}

std::vector<Record> read_log(const std::vector<double>& log) {
  std::vector<Record> history;
  for (Reader reader(log); !reader.at_end();) {
    Record& r = history.emplace_back();
    r.server = static_cast<size_t>(reader.next());
    r.operation = static_cast<entries::Operation>(reader.next());
    r.argument = reader.next();
    r.samples = reader.next();
    r.gradient = reader.list();
    r.yes = reader.next() != 0;
    r.ticket = reader.next();
    r.item = reader.next();
    r.ticket_version = reader.next();
    r.updates = reader.next();
    r.version_seen = reader.next();
    r.push_changed = reader.next() != 0;
    r.state = reader.state();
  }
  return history;
}

Oracle::Oracle(int64_t n, int64_t s, int64_t items, State start)
    : n_(n), s_(s), items_(items), state_(std::move(start)) {
  if (state_.gradients == 0) return;  // else one term stands for all that have come
  Term term{static_cast<double>(state_.samples), state_.sum};
  for (double& value : term.gradient) value /= std::max(1.0, term.samples);
  pending_.push_back(term);
}

bool Oracle::push(int64_t ticket, int64_t samples, const std::vector<double>& gradient) {
  const auto found = state_.leases.find(ticket);
  if (found == state_.leases.end()) return false;
  stalest_ = std::max(stalest_, state_.version - found->second.version);
  state_.leases.erase(found);
  counted_.insert(ticket);
  pending_.push_back({static_cast<double>(samples), gradient});
  for (size_t i = 0; i < elements(); ++i)
    state_.sum[i] += static_cast<double>(samples) * gradient[i];
  state_.samples += samples;
  if (++state_.gradients < n_) return true;
  std::vector<double> mean = state_.sum;
  for (double& value : mean)
    value = state_.samples > 0 ? value / static_cast<double>(state_.samples) : 0.0;
  means_.push_back(std::move(mean));
  terms_.push_back(std::exchange(pending_, {}));
  state_.sum.assign(elements(), 0.0);
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
