// Correct versions of tasks 1 to 3, in the place of the student's for tests of other tasks.
#pragma once

#include "labs/08_overlap/overlap.h"

namespace lab08 {

std::vector<Bucket> correct_buckets(std::span<const int64_t> sizes, int64_t cap_bytes,
                                    int64_t first_cap_bytes);
void correct_begin(Reducer& reducer, int64_t targets);
void correct_ready(Reducer& reducer, size_t parameter);
void correct_finish(Reducer& reducer);

}  // namespace lab08
