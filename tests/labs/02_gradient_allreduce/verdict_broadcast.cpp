// Verdict on task 1: every rank draws other weights, and must end up with those of rank 0.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>
#include <string>
#include <vector>

#include "tests/labs/02_gradient_allreduce/verdict_ranks.h"

namespace lab02 {
namespace {

using lab::grading::GroupOptions;
using lab::grading::Parcel;

/// Sum or mean of the ranks' own weights, up to rounding.
bool is_multiple_of_sum(const Numbers& got, const std::vector<Numbers>& before, double factor) {
  for (size_t i = 0; i < got.size(); ++i) {
    double sum = 0;
    double terms = 0;
    for (const Numbers& own : before) {
      sum += own[i];
      terms += std::abs(own[i]);
    }
    if (!(std::abs(got[i] - factor * sum) <= 1e-6 * terms)) return false;
  }
  return true;
}

/// Of the model's tensors those that hold rank 0's numbers: "2 of 21 tensors, model.norm.weight
/// among them".
std::string tensors_that_arrived(const Parcel& result, const Numbers& wanted) {
  const Numbers got = lab::grading::to_doubles(result.tensor("weights"));
  Numbers begins = result.numbers("begins");
  begins.push_back(static_cast<double>(got.size()));
  std::istringstream names(result.text("names"));
  const Numbers own = lab::grading::to_doubles(result.tensor("before"));
  int arrived = 0;
  std::string first;
  std::string line;
  for (size_t k = 0; std::getline(names, line); ++k) {
    const auto begin = static_cast<std::ptrdiff_t>(begins[k]);
    const auto end = static_cast<std::ptrdiff_t>(begins[k + 1]);
    // Norms are 1 on all ranks from the start: they show nothing.
    if (std::equal(own.begin() + begin, own.begin() + end, wanted.begin() + begin)) continue;
    if (!std::equal(got.begin() + begin, got.begin() + end, wanted.begin() + begin)) continue;
    if (first.empty()) first = line;
    ++arrived;
  }
  if (arrived == 0) return "";
  return arrived == 1
             ? fmt::format("only {} arrived", first)
             : fmt::format("only {} tensors arrived, {} the first of them", arrived, first);
}

/// Why rank `r` does not have rank 0's weights.
std::string explain(size_t r, const std::vector<Parcel>& results,
                    const std::vector<Numbers>& before, const Numbers& got) {
  const auto n = static_cast<double>(results.size());
  for (size_t q = 1; q < before.size(); ++q)
    if (q != r && got == before[q])
      return fmt::format("these are the weights of rank {}; the root of the broadcast is rank 0",
                         q);
  if (r == 0 && before.size() > 1 && got == before[1])
    return "these are the weights of rank 1; the root of the broadcast is rank 0";
  if (got == before[r])
    return "it still has its own weights: nothing arrived in the model. Do all ranks send or "
           "receive, and into model.parameters() itself?";
  if (is_multiple_of_sum(got, before, 1.0))
    return "its weights are the sum over all ranks; copy those of rank 0";
  if (is_multiple_of_sum(got, before, 1.0 / n))
    return "its weights are the mean over all ranks: a start from weights that nobody drew. Copy "
           "those of rank 0";
  const std::string arrived = tensors_that_arrived(results[r], before[0]);
  return arrived.empty() ? "its weights are not those of rank 0"
                         : arrived + "; model.parameters() holds all weights in one piece";
}

void expect_weights_of_rank_0(int ranks, const GroupOptions& options) {
  std::vector<Parcel> inputs(static_cast<size_t>(ranks));
  for (size_t r = 0; r < inputs.size(); ++r) inputs[r].set("seed", static_cast<double>(60 + r));
  const std::vector<Parcel> results = lab::grading::student_group("broadcast", inputs, options);
  const std::vector<Numbers> before = tensors_of(results, "before");
  const std::vector<Numbers> weights = tensors_of(results, "weights");
  for (size_t r = 0; r < weights.size(); ++r)
    if (weights[r] != before[0])
      lab::grading::stop(fmt::format("rank {}: {}", r, explain(r, results, before, weights[r])));
}

TEST(Task1, ThreeRanks) { expect_weights_of_rank_0(3, over_gloo()); }

TEST(Task1, TwoRanksLateMessages) { expect_weights_of_rank_0(2, simulated(11)); }

TEST(Task1, FiveRanksInAnyOrder) { expect_weights_of_rank_0(5, simulated(12)); }

TEST(Task1, OneRankKeepsItsWeights) { expect_weights_of_rank_0(1, over_gloo()); }

}  // namespace
}  // namespace lab02
