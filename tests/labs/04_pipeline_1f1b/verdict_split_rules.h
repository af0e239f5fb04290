// What is right about a split, and what is wrong about it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lab04 {

struct SplitCase {
  int64_t layers = 0;
  int stages = 0;
  double head_cost = 0;
};

struct Span {
  int64_t first_layer = 0;
  int64_t last_layer = 0;
  bool embeds = false;
  bool has_head = false;
};

/// Empty if the spans are a split as the contract wants it; else what is wrong, in one line.
std::string split_problem(const SplitCase& c, const std::vector<Span>& spans);

}  // namespace lab04
