// Lab 11 · the tables of workers: during a run of real processes, and at the end. Given.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "labs/11_parameter_server/main_ledger.h"

namespace lab11 {

/// The lines of a table: what each worker does now, with the weights of which step, how many
/// updates old these are, how many of its gradients have counted, and how many a second since it
/// joined.
std::vector<std::string> live_table(const Ledger& ledger, int64_t updates);

/// How many gradients each worker has computed in this many `unit`s of time: a table.
std::string describe_workers(const std::map<int, int64_t>& gradients, double seconds,
                             const std::string& unit, int64_t stalest);

}  // namespace lab11
