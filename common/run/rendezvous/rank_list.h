// Ranks in words.
#pragma once

#include <fmt/format.h>

#include <string>
#include <vector>

namespace lab {

/// "rank 1", "ranks 1 and 2", "ranks 1, 2 and 5".
inline std::string rank_list(const std::vector<int>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < ranks.size(); ++i) {
    if (i > 0) text += i + 1 == ranks.size() ? " and " : ", ";
    text += std::to_string(ranks[i]);
  }
  return text;
}

}  // namespace lab
