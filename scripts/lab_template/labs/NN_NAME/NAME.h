// Lab NN · what it is about, in a few words. This is the contract; you write NAME.cpp.
//
// The functions keep nothing between calls: what they return and send depends only on their
// arguments.
#pragma once

#include <vector>

#include "common/comm/process_group.h"

namespace labNN {

/// Task 1 · The numbers of all ranks, sorted.
///
/// `number`: this rank's. Returns the numbers of all ranks from the smallest to the largest, the
/// same list on every rank. Equal numbers occur as often as there are ranks that have them.
/// All ranks call it together.
std::vector<float> sorted_numbers(float number, lab::ProcessGroup& world);

}  // namespace labNN
