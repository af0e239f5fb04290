// Comparing what a student's code returned with what it should be, and guessing the mistake.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "common/tensor/tensor.h"

namespace lab::grading {

using Numbers = std::vector<double>;

/// A hypothesis about a mistake: the numbers that a program with it returns, and the message for
/// exactly these.
struct Mistake {
  std::vector<double> values;
  std::string message;
};

/// The right numbers, and how to speak about them.
struct Expected {
  std::string what;  // "the gradients"
  std::vector<double> values;
  std::vector<double> tolerance;                 // per element; a single one holds for all
  std::function<std::string(size_t)> name = {};  // of element i, "row 0, position 3"
  /// Asked for when the numbers are wrong. The message names the one that comes closest to them,
  /// among those that differ from the right numbers in this case. Of equals it names the first;
  /// judge_calls then looks for a call in which they differ.
  std::function<std::vector<Mistake>()> mistakes = {};
  std::string if_not_finite = {};  // told when a number is infinite or not a number
  std::string unexplained = {};  // told of wrong numbers that no mistake explains, not their count
  /// What is added to the tolerance. It is asked for only if the numbers are outside of that,
  /// because finding it takes long.
  std::function<double()> slack = {};
};

/// Empty if `got` is within tolerance everywhere. Else what is wrong: in the first line the mistake
/// that explains the numbers, if one is known (otherwise whether all are zero, or a constant
/// multiple of the right ones), then the element that is furthest off. Numbers that are not finite
/// never pass.
std::string difference(const std::vector<double>& got, const Expected& expected);

/// For each call of `difference` since this was last asked in which mistakes explained the numbers:
/// the messages of all that explain them equally well, first the one that was told.
std::vector<std::vector<std::string>> take_explanations();

std::vector<double> to_doubles(const Tensor& tensor);

/// For each element fraction * |value|, but at least fraction * floor.
std::vector<double> relative_tolerance(const std::vector<double>& values, double fraction,
                                       double floor);

double largest_magnitude(const std::vector<double>& values);

/// What an all_reduce with ReduceOp::kMax makes of the ranks' equally long parts.
Numbers largest_in_each_place(const std::vector<Numbers>& parts);

}  // namespace lab::grading
