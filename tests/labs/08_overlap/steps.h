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
  std::vector<std::vector<size_t>> orders;  // [rank]: in which gradients become ready, if they do
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
  bool two_models = false;  // each rank takes steps of another model in between, for itself
  bool again = false;       // each call of `ready` is repeated
  bool abandoned = false;   // messages of a step that ended with an error still travel
  std::vector<Step> steps = {};

  size_t bytes_of(size_t bucket) const;
  double all_reduce_seconds(size_t bytes) const;
  /// Whether no gradient of the step is missing on a rank.
  bool is_complete(size_t step, size_t rank) const;
  /// How many buckets a rank has posted once the first `count` of its gradients are ready.
  size_t due(size_t step, size_t rank, size_t count) const;
};

/// A case for each property that has been overlooked; the simplest comes first.
std::vector<StepsCase> draw_steps(uint64_t seed);

/// How the ranks reach each other.
enum class Wires {
  kCosts,  // simulated: each message takes as long as the network of the case needs
  kLate,   // simulated: messages are late, ranks run in any order
  kGloo,
};

/// Takes the steps of the cases and ends the test as failed unless they did what the contract says.
/// Cases with equally many ranks and the same network are calls of one job, so that anything a
/// function keeps from one to the next is noticed. `given`: the task whose functions are replaced
/// by correct ones. `judge`: replaces all the judging described below.
using JudgeSteps = std::function<void(const StepsCase&, const std::vector<Parcel>&)>;
void expect_steps(const std::vector<StepsCase>& cases, Wires wires, const std::string& given,
                  const JudgeSteps& judge = {});

// What the contract says about steps. Each ends the test as failed unless it is so.

/// Every rank posted each bucket exactly when its turn had come, and changed no gradient.
void expect_posts(const StepsCase& c, const std::vector<Parcel>& ranks);
/// It has the mean over all targets.
void expect_means(const StepsCase& c, const std::vector<Parcel>& ranks);
/// It waited as long after its backward pass as the network needed, and no longer.
void expect_exposed(const StepsCase& c, const std::vector<Parcel>& ranks);
/// Why ranks wait for each other forever, in the words of the lesson if it is for what they posted.
std::string explain_deadlock(const StepsCase& c, const std::vector<Parcel>& ranks,
                             const std::string& diagnosis);

}  // namespace lab08
