// Gradients and losses of one wave, and what well-known mistakes make of them.
#pragma once

#include <string>
#include <vector>

#include "tests/labs/05_microbatches/verdict_wave.h"

namespace lab05 {

/// What is wrong with the gradients, without a guess at the mistake; empty if they are right.
std::string wrong_gradients(const std::vector<lab::grading::Parcel>& results, const WaveCase& c);

/// Ends the test as failed unless gradients and losses are right on every rank.
void expect_numbers(const std::vector<lab::grading::Parcel>& results, const WaveCase& c);

}  // namespace lab05
