// Judging how an epoch is shared out among readers: ranks, or pipelines.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lab::grading {

using Sequences = std::vector<int64_t>;

/// Why `shares`, one for each reader, are no fair shares of an epoch's `order`; empty if they are:
/// disjoint, equally long, and complete but for the last order.size() % shares.size() sequences.
/// `reader`: "rank".
std::string unfair_shares(const Sequences& order, const std::vector<Sequences>& shares,
                          const std::string& reader);

/// " 4 0 7", a few of them.
std::string in_words(const Sequences& sequences);

}  // namespace lab::grading
