// The weights of all ranks, and what right and wrong ways to average them give: for tasks 1b, 3
// and 4.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tests/grading/training_oracle.h"
#include "tests/grading/verdict.h"

namespace lab03 {

using lab::grading::expect_on_every_rank;
using lab::grading::expect_same_bits;
using lab::grading::Numbers;

/// One rank's numbers each, and what they count.
struct RankWeights {
  std::vector<Numbers> values;              // per rank, equally many
  Numbers shares;                           // per rank
  std::function<std::string(size_t)> name;  // of weight i: "model.norm.weight, element 3"

  size_t ranks() const { return values.size(); }
  /// Sum over the ranks of factor(rank) * values[rank].
  Numbers combine(const std::function<double(size_t)>& factor) const;
  Numbers average() const;
  /// Sum of the magnitudes of the average's terms, per element.
  Numbers magnitude() const;
  /// What rank `self` should have, with the mistakes that people make. `what`: "the weights".
  /// Valid only while this and `got`, what the ranks have, are alive.
  lab::grading::Expected expected(size_t self, const std::vector<Numbers>& got,
                                  const std::string& what) const;
};

/// What a function is given: all weights of a rank in one tensor, of the same shape on every rank.
struct Case {
  std::string name;
  Numbers shares;                   // per rank
  std::vector<lab::Tensor> values;  // per rank
  bool exact = false;               // no sum of these weights times shares needs rounding

  RankWeights weights() const;
  uint64_t bytes() const { return values[0].bytes(); }
};

/// Random weights, unlike on every rank.
Case random_case(const std::string& name, const lab::Shape& shape, const Numbers& shares,
                 uint64_t seed);

/// Shares and shapes of all kinds, and the same shape with other numbers.
std::vector<Case> cases_for(size_t ranks, uint64_t seed);

inline const lab::Shape kSomeShape = {96};

/// The calls of `scenario` with these cases.
std::vector<lab::grading::Call> calls_of(const std::string& scenario,
                                         const std::vector<Case>& cases);

/// Ends the test as failed if the call wrote where no weights are.
void expect_whole_fences(const std::vector<lab::grading::Parcel>& results);

/// Ends the test as failed if rank `rank` of `ranks` put more into messages than one aggregation of
/// `bytes` of weights needs, by whichever collectives.
void expect_one_aggregation(const std::vector<lab::grading::Operation>& sent, uint64_t bytes,
                            size_t rank, size_t ranks, const std::string& if_too_much);

}  // namespace lab03
