// The order in which threads, blocks and streams run.
#pragma once

#include <cstdint>
#include <vector>

namespace lab::emulation {

/// The numbers 0 .. count - 1 in the order that was set. `salt` makes shuffled orders differ.
void fill_order(std::vector<unsigned>& order, unsigned count, uint64_t salt);

}  // namespace lab::emulation
