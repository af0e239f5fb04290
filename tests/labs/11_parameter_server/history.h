// What happened to a server, as a rank program has logged it, and what should have happened.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "tests/labs/11_parameter_server/entries.h"

namespace lab11 {

struct LeaseRecord {
  int64_t worker = 0;
  int64_t item = 0;
  int64_t version = 0;
  bool operator==(const LeaseRecord&) const = default;
};

/// The members of Server that change.
struct State {
  int64_t version = 0;
  int64_t gradients = 0;
  int64_t samples = 0;
  int64_t next_item = 0;
  int64_t next_ticket = 0;
  std::map<int64_t, LeaseRecord> leases = {};
  std::set<int64_t> returned = {};
  std::vector<double> sum = std::vector<double>(entries::kElements, 0.0);
};
/// As entries.h has it.
void write_state(const State& state, std::vector<double>& numbers);

/// One call, and the state after it.
struct Record {
  size_t server = 0;
  entries::Operation operation = entries::kPull;
  int64_t argument = 0;  // worker or ticket
  int64_t samples = 0;
  std::vector<double> gradient = {};
  bool yes = false;
  int64_t ticket = 0;
  int64_t item = 0;
  int64_t ticket_version = 0;
  int64_t updates = 0;       // calls of `update` so far
  int64_t version_seen = 0;  // by the last of them
  bool push_changed = false;
  State state = {};
};
std::vector<Record> read_log(const std::vector<double>& log);

/// A server as the contract has it. Also remembers the past, for messages.
class Oracle {
 public:
  Oracle(int64_t n, int64_t s, int64_t items, State start = {});

  bool push(int64_t ticket, int64_t samples, const std::vector<double>& gradient);
  bool may_start() const;
  /// The item that is handed out; none if the worker must wait.
  std::optional<int64_t> pull(int64_t worker);
  void leave(int64_t worker);
  bool has_item() const { return !state_.returned.empty() || state_.next_item < items_; }

  int64_t n() const { return n_; }
  int64_t s() const { return s_; }
  int64_t items() const { return items_; }
  const State& state() const { return state_; }
  size_t elements() const { return state_.sum.size(); }
  /// Per update: its mean.
  const std::vector<std::vector<double>>& means() const { return means_; }
  /// The largest staleness of a gradient so far.
  int64_t stalest() const { return stalest_; }

  /// What is known of tickets that have no lease any more.
  bool was_counted(int64_t ticket) const { return counted_.count(ticket) > 0; }
  struct Term {
    double samples = 0;
    std::vector<double> gradient;
  };
  using Terms = std::vector<Term>;
  /// For each update: the terms of its mean.
  const std::vector<Terms>& terms() const { return terms_; }
  /// Those of the next update so far.
  const Terms& pending() const { return pending_; }

 private:
  int64_t n_, s_, items_;
  State state_;
  std::set<int64_t> counted_;
  Terms pending_;
  std::vector<Terms> terms_;
  std::vector<std::vector<double>> means_;
  int64_t stalest_ = 0;
};

/// Ends the test as failed at the first call that is not as the contract says. `means`: what
/// `update` was called with, per server. `may_start_is_theirs`: a pull that is answered wrongly is
/// the fault of may_start.
void expect_history(const std::vector<Record>& history, std::vector<Oracle>& oracles,
                    const std::vector<std::vector<double>>& means,
                    bool may_start_is_theirs = false);

/// What is wrong with `sum` after a call of on_push; empty if nothing is.
std::string wrong_sum(const Oracle& oracle, const std::vector<double>& sum, bool due);

/// Ends the test as failed unless `update` was called with these means. `sums`: what is known to be
/// wrong with `sum`; told if no usual mistake explains the means.
void judge_means(const Oracle& oracle, const std::vector<double>& got, const std::string& sums);

}  // namespace lab11
