// Lab 11 · gradients.jsonl, with every gradient that arrived; and the state of each worker. Given.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <set>

#include "common/comm/server/messages.h"
#include "common/run/training/training_run.h"

namespace lab11 {

/// A line of the file, whose keys are these names. One that counted also has its "staleness".
struct Arrival {
  int64_t ticket = 0;  // under which it was pushed
  int64_t item = -1;   // the rest as handed out with this ticket; -1: by another process
  int worker = -1;
  int64_t version = 0;  // of the weights: the updates made when the ticket was handed out
  int64_t samples = 0;
  double loss = 0;
  std::optional<int64_t> update = {};  // that it became part of, from 1; left out if it did not
                                       // count: it came too late, or for the second time
};

struct WorkerState {
  enum class Kind { kComputes, kWaits, kGone };
  Kind kind = Kind::kWaits;
  int64_t version = 0;       // of the weights that it has
  int64_t gradients = 0;     // that counted, of all workers with this number
  int64_t of_this_life = 0;  // that counted since it joined
  double joined_s = 0;       // on the clock of the ledger
  double left_s = 0;
};

/// Watches what the student's functions hand out and accept. It relies on none of their state:
/// items, versions and workers are those of the tickets that really went out.
class Ledger {
 public:
  /// Keeps the lines of an existing file up to update `updates`, and drops what will be repeated.
  /// If these do not list `n` gradients for each update (the file is missing or was truncated by a
  /// power failure, or items had a different size), it prints a note and assumes that these were
  /// the first items. Throws Error if the file cannot be written.
  Ledger(std::filesystem::path path, int64_t updates, int64_t n);
  /// Removes a file without a complete update: the run has nothing to go on from.
  ~Ledger();
  Ledger(const Ledger&) = delete;
  Ledger& operator=(const Ledger&) = delete;

  /// A worker has asked for work, and got this ticket or must wait; `updates` have been made.
  void pulled(int worker, const std::optional<lab::Ticket>& ticket, int64_t updates);
  /// A gradient has arrived. `update`: that it became part of, if it counted. Throws Error when the
  /// disk is full.
  void pushed(const lab::Push& push, std::optional<int64_t> update);
  void left(int worker);

  /// The items whose gradients have counted, and a number above those of all tickets in the file.
  const std::set<int64_t>& counted_items() const { return counted_; }
  int64_t next_ticket() const { return next_ticket_; }

  /// By number, those of this process.
  const std::map<int, WorkerState>& workers() const { return workers_; }
  double seconds() const { return clock_.seconds(); }

 private:
  struct HandedOut {
    int64_t item = 0;
    int worker = 0;
    int64_t version = 0;
  };

  void read(int64_t updates);

  std::filesystem::path path_;
  size_t least_;  // lines that make an update
  std::ofstream file_;
  std::set<int64_t> counted_;
  size_t counted_lines_ = 0;  // as many, unless the student's functions count an item twice
  int64_t next_ticket_ = 0;
  std::map<int64_t, HandedOut> tickets_;  // all of them: any may come again
  std::map<int, WorkerState> workers_;
  lab::Stopwatch clock_;
};

}  // namespace lab11
