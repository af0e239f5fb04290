// Judging what several ranks returned: every one of them, and all together.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "common/grading/verdict.h"

namespace lab02 {

using Numbers = std::vector<double>;

/// Ranks as processes, over TCP.
lab::grading::GroupOptions over_gloo(
    lab::grading::Functions functions = lab::grading::Functions::kOwn);

/// Simulated ranks, of which any may come first, and whose messages may be late.
lab::grading::GroupOptions simulated(
    uint64_t seed, lab::grading::Functions functions = lab::grading::Functions::kOwn);

/// An entry of every rank.
std::vector<Numbers> tensors_of(const std::vector<lab::grading::Parcel>& results,
                                const std::string& entry);
std::vector<Numbers> numbers_of(const std::vector<lab::grading::Parcel>& results,
                                const std::string& entry);

/// Ends the test as failed unless every rank's numbers are right. `expected(r)` says what rank r
/// should have; `details(r)`, if given, adds lines to the message about it. Where other ranks have
/// the right numbers, the message says which.
void expect_on_every_rank(const std::vector<Numbers>& got,
                          const std::function<lab::grading::Expected(size_t)>& expected,
                          const std::function<std::string(size_t)>& details = {});

/// Ends the test as failed unless all ranks have the same bits.
void expect_same_bits(const std::vector<Numbers>& got, const std::string& what);

/// What a function may send.
struct Budget {
  uint64_t all_reduces = 0;
  uint64_t bytes = 0;        // handed to all_reduce by a rank
  std::string if_too_many;   // told when there are more all_reduces than that
  std::string if_too_large;  // told when there are more bytes
};

/// Ends the test as failed if a rank sent more, or anything but all_reduces. To be called when the
/// numbers are known to be right.
void expect_traffic(const std::vector<lab::grading::Parcel>& results, const Budget& budget);

}  // namespace lab02
