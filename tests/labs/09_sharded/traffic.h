// What a step of lab 09 sends: how much, how often, and in which order.
#pragma once

#include <cstddef>
#include <vector>

#include "tests/grading/parcel.h"
#include "tests/grading/training_case.h"

namespace lab09 {

/// What each part of the model takes, and when it is used.
struct Sizes {
  std::vector<double> part;  // padded elements
  double ranks = 1;
  int stage = 1;
  bool tied = false;

  double shard(size_t p) const { return part[p] / ranks; }
  double all() const;
  double largest_shard() const;
  /// The parts in the order in which a forward pass uses them; a backward pass goes the other way.
  std::vector<size_t> forward() const;
  /// The parts that a backward pass uses, each step of the computation alone.
  std::vector<std::vector<size_t>> backward() const;
};

/// Gradients that are reduced, and weights that are gathered, of one step of one rank.
void expect_traffic(const lab::grading::TrainingCase& c, const Sizes& sizes,
                    const lab::grading::Parcel& rank, size_t r, size_t step);

/// For a step whose numbers are all right: that it sends no more of them than it needs.
void expect_numbers_sent(const lab::grading::TrainingCase& c, const lab::grading::Parcel& rank,
                         size_t r, size_t step);

}  // namespace lab09
