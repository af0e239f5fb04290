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

/// The members of Server that are compared.
struct State {
  int64_t version = 0;
  int64_t gradients = 0;
  int64_t samples = 0;
  int64_t next_item = 0;
  int64_t next_ticket = 0;
  std::map<int64_t, LeaseRecord> leases = {};
  std::set<int64_t> returned = {};
};

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
  int64_t updates = 0;  // calls of `update` so far
  bool push_changed = false;
  State state = {};
};
std::vector<Record> read_log(const std::vector<double>& log);

/// A server as the contract has it. Also remembers the past, for messages.
class Oracle {
 public:
  Oracle(int64_t n, int64_t s, int64_t items) : n_(n), s_(s), items_(items) {}

  bool push(const Record& call);
  bool may_start() const;
  /// The item; nothing: not now.
  std::optional<int64_t> pull(int64_t worker);
  void leave(int64_t worker);
  bool has_item() const { return !state_.returned.empty() || state_.next_item < items_; }

  int64_t n() const { return n_; }
  int64_t s() const { return s_; }
  const State& state() const { return state_; }
  /// Per update: its mean.
  const std::vector<std::vector<double>>& means() const { return means_; }
  /// The largest staleness of a gradient so far.
  int64_t stalest() const { return stalest_; }

  /// What is known of tickets that have no lease any more.
  bool was_counted(int64_t ticket) const { return counted_.count(ticket) > 0; }
  /// For each update: the terms of its mean.
  struct Term {
    double samples = 0;
    std::vector<double> gradient;
  };
  const std::vector<std::vector<Term>>& terms() const { return terms_; }
  const std::vector<Term>& refused() const { return refused_; }

 private:
  int64_t n_, s_, items_;
  State state_;
  std::set<int64_t> counted_;
  std::vector<Term> pending_;
  std::vector<std::vector<Term>> terms_;
  std::vector<Term> refused_;
  std::vector<std::vector<double>> means_;
  int64_t stalest_ = 0;
};

/// Ends the test as failed at the first call that is not as the contract says. `means`: what
/// `update` was called with, per server. `may_start_is_theirs`: a pull that is answered wrongly is
/// the fault of may_start.
void expect_history(const std::vector<Record>& history, std::vector<Oracle>& oracles,
                    const std::vector<std::vector<double>>& means,
                    bool may_start_is_theirs = false);

}  // namespace lab11
