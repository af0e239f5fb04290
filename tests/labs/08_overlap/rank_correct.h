// Correct versions of tasks 1 to 3, in the place of the student's for tests of other tasks.
#pragma once

#include "labs/08_overlap/overlap.h"

namespace lab08 {

namespace given_1 {
std::vector<Bucket> assign_buckets(std::span<const int64_t> sizes, int64_t cap_bytes,
                                   int64_t first_cap_bytes);
}

namespace given_2 {
void begin(Reducer& reducer, int64_t targets);
void ready(Reducer& reducer, size_t parameter);
}  // namespace given_2

namespace given_3 {
void finish(Reducer& reducer);
}

}  // namespace lab08
