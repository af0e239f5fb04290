// Judging how an epoch is divided into shards among readers: ranks, or pipelines.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lab::grading {

using Sequences = std::vector<int64_t>;

/// What is wrong with `shares`, the shards of an epoch's `order`, one for each reader; empty if
/// they are disjoint, equally long, complete except for the last order.size() % shares.size()
/// sequences, and each in the order of `order`.
/// `reader`: "rank".
std::string unfair_shares(const Sequences& order, const std::vector<Sequences>& shares,
                          const std::string& reader);

/// " 4 0 7", a few of them.
std::string in_words(const Sequences& sequences);

}  // namespace lab::grading
