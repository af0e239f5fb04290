// Judging what the ranks of a pipeline returned: every one of them.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "common/data/batch.h"
#include "common/grading/verdict.h"
#include "tests/labs/pipeline/every_rank.h"

namespace lab05 {

using Numbers = std::vector<double>;
using pipeline_tests::late;
using pipeline_tests::over_gloo;

/// What each rank of a pipeline gets: the first and the last stage the true tokens, the others
/// tokens of the same shape that mean nothing.
std::vector<lab::TokenBatch> tokens_for(size_t rank, size_t ranks,
                                        const std::vector<lab::TokenBatch>& microbatches);

/// A scenario of the oracle, on one simulated rank.
lab::grading::Parcel oracle(const std::string& scenario, const lab::grading::Parcel& input);

/// What is wrong with `entry`, of which every rank should have its part of `whole`, the numbers of
/// all stages one behind the other; empty if nothing is. Gradients that are wrong on one stage are
/// wrong on those before it: told is the last rank with wrong numbers, and which ranks are right.
/// `details(r)`, if given, adds lines about rank r.
std::string difference_on_ranks(const lab::grading::Expected& whole,
                                const std::vector<lab::grading::Mistake>& mistakes,
                                const std::vector<lab::grading::Parcel>& results,
                                const std::string& entry,
                                const std::function<std::string(size_t)>& details);

using Mistakes = std::function<std::vector<lab::grading::Mistake>()>;

/// Ends the test as failed if there is such a difference. `mistakes` is asked only then: it may
/// take its time.
void expect_parts_of(const lab::grading::Expected& whole, const Mistakes& mistakes,
                     const std::vector<lab::grading::Parcel>& results, const std::string& entry,
                     const std::function<std::string(size_t)>& details = {});

/// The returned loss: `last` says what the last rank's should be; the others' are 0.
void expect_losses(const std::vector<lab::grading::Parcel>& results, const std::string& entry,
                   const lab::grading::Expected& last);

}  // namespace lab05
