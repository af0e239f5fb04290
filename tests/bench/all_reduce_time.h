// How long a rank was in all_reduce.
#pragma once

#include <cstdint>

#include "common/comm/diagnosis/flight_recorder.h"

namespace lab::bench {

/// Seconds that this rank has spent in all_reduce since its record began.
inline double seconds_in_all_reduce(const FlightRecorder& recorder) {
  int64_t sum_ns = 0;
  for (const OpRecord& op : recorder.history())
    if (op.kind == OpKind::kAllReduce) sum_ns += op.done_ns - op.posted_ns;
  return static_cast<double>(sum_ns) * 1e-9;
}

}  // namespace lab::bench
