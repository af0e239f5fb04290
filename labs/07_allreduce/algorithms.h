// Lab 07 · the all-reduces by name. Given.
#pragma once

#include <array>
#include <map>
#include <string>

#include "labs/07_allreduce/allreduce.h"

namespace lab07 {

/// In the order of Algorithm.
inline constexpr std::array<const char*, kAlgorithms> kNames = {"root", "ring", "doubling",
                                                                "hierarchical"};

inline std::map<std::string, Algorithm> algorithms_by_name() {
  std::map<std::string, Algorithm> names;
  for (size_t i = 0; i < kAlgorithms; ++i) names[kNames.at(i)] = static_cast<Algorithm>(i);
  return names;
}

/// `hosts`: for the hierarchical algorithm; the others ignore it.
inline void all_reduce(Algorithm algorithm, const lab::Tensor& tensor, lab::ReduceOp op,
                       lab::ProcessGroup& world, Hosts* hosts) {
  switch (algorithm) {
    case Algorithm::kRoot:
      return reduce_at_root(tensor, op, world);
    case Algorithm::kRing:
      return ring_all_reduce(tensor, op, world);
    case Algorithm::kDoubling:
      return doubling_all_reduce(tensor, op, world);
    case Algorithm::kHierarchical:
      return hierarchical_all_reduce(tensor, op, *hosts);
  }
}

}  // namespace lab07
