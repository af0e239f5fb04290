// What train_step hands to the given compute_gradients, on record.
#pragma once

#include <cstdint>
#include <span>

#include "common/data/batch.h"
#include "common/pipeline/schedule.h"

namespace lab06 {

struct GradientLog {
  const lab::Schedule* schedule = nullptr;             // what train_step got
  std::span<const lab::TokenBatch> microbatches = {};  // likewise
  double returned = 0;                                 // by the given compute_gradients
  uint64_t before = 0;  // this rank's last operation before the call of it
  uint64_t behind = 0;  // and the last one of it
};

/// Of this rank. Simulated ranks are threads.
inline GradientLog& gradient_log() {
  thread_local GradientLog log;
  return log;
}

}  // namespace lab06
