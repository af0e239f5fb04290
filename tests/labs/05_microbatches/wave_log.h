// What train_step hands to run_actions and to its loss, on record.
#pragma once

#include <cstdint>
#include <span>
#include <stdexcept>
#include <vector>

#include "common/data/batch.h"
#include "common/pipeline/schedule.h"

namespace lab05 {

/// Thrown by a given function about a call that it cannot answer. Not lab::Error: that is what
/// train_step itself must throw about its arguments.
class Refused : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

struct StepLog {
  const lab::Schedule* schedule = nullptr;        // what train_step got; null: no step under way
  std::span<const lab::TokenBatch> microbatches;  // likewise
  std::vector<double> waves;   // of every call of run_actions, the number of its first microbatch
  std::vector<double> totals;  // the `total_targets` of every call of the loss
};

/// Of this rank. Simulated ranks are threads.
inline StepLog& step_log() {
  thread_local StepLog log;
  return log;
}

}  // namespace lab05
