// The inputs of a case, and the numbers that its ranks must have.
#pragma once

#include <vector>

#include "tests/labs/07_allreduce/reduction.h"

namespace lab07 {

/// World ranks of each group that calls the function, in the order of their numbers in it; without
/// those that take no part.
std::vector<std::vector<int>> groups_of(const Case& c, int ranks);

/// The number of a world rank in its group.
int place_in(const std::vector<std::vector<int>>& groups, int rank);

/// What world rank `rank` starts with; `place`: its number in its group.
std::vector<float> numbers_of(const Case& c, int rank, int place);

/// Ends the test as failed unless `got`, by number in the group, follows from `inputs`, and has the
/// same bits on all ranks.
void expect_results(const Case& c, const std::vector<lab::grading::Numbers>& got,
                    const std::vector<std::vector<float>>& inputs);

}  // namespace lab07
