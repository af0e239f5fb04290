// How much memory a rank uses beside its tensor.
#pragma once

#include <cstddef>

namespace lab07::scenario {

/// From now on, this thread's memory is counted: whatever comes from operator new, as tensors do.
void count_scratch();
/// The most bytes in use at once since then, beyond those in use when it was called.
size_t most_scratch();
/// How many more bytes are in use now than when it was called.
size_t kept_scratch();

}  // namespace lab07::scenario
