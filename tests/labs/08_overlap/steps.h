// Steps with made-up gradients for tasks 2 and 3: what every rank is given, and what must follow.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "tests/grading/verdict.h"

namespace lab08 {

using lab::grading::Numbers;
using lab::grading::Parcel;

/// One step on every rank.
struct Step {
  std::vector<Numbers> values;              // [rank]: all gradients, parameter by parameter
  Numbers targets;                          // [rank]
  std::vector<std::vector<size_t>> orders;  // [rank]: in which gradients become ready
  std::vector<Numbers> seconds;             // [rank][parameter]: how long each takes
};

/// Several steps of one job, with a network that takes time.
struct StepsCase {
  std::string name;  // "rank 1's gradients become ready in another order"
  size_t ranks = 3;
  std::vector<size_t> sizes;  // of the parameters, in elements
  std::vector<std::vector<size_t>> buckets;
  double alpha = 1e-3;
  double beta = 1e-6;
  std::vector<Step> steps;

  size_t bytes_of(size_t bucket) const;
  double all_reduce_seconds(size_t bytes) const;
  /// `timed`: in a simulation with this network.
  std::vector<Parcel> inputs(bool timed = true) const;
  lab::grading::JobOptions options(std::set<std::string> given) const;
};

/// A case for each property that has been overlooked; the simplest comes first.
std::vector<StepsCase> draw_steps(uint64_t seed);

/// Ends the test as failed unless every rank posted each bucket exactly when its turn had come.
void expect_posts(const StepsCase& c, const std::vector<Parcel>& ranks);
/// ... and has the mean over all targets.
void expect_means(const StepsCase& c, const std::vector<Parcel>& ranks);
/// ... and waited as long after its backward pass as the network needed, and no longer.
void expect_exposed(const StepsCase& c, const std::vector<Parcel>& ranks);

}  // namespace lab08
