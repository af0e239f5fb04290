// Scenarios of lab 11 with a server: scripts of single calls, and simulated schedules.
#pragma once

#include "tests/grading/parcel.h"

namespace lab11 {

/// The operations of a script (entries.h), on one server or several in turn.
lab::grading::Parcel run_script(const lab::grading::Parcel& input);

/// Task 2: the answer in each of many states. Per state: n, s, items, and the state.
lab::grading::Parcel run_may_start(const lab::grading::Parcel& input);

/// Whole runs in simulated time: workers that are slow, die and join, messages that are lost or
/// late, all drawn from the seed.
lab::grading::Parcel run_schedules(const lab::grading::Parcel& input);

}  // namespace lab11
