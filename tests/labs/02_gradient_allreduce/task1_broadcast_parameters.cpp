// Task 1: every rank draws other weights, and must end up with those of rank 0.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <sstream>

#include "tests/grading/training_oracle.h"
#include "tests/grading/verdict.h"

namespace lab02::task1 {
namespace {

using lab::grading::Call;
using lab::grading::Numbers;
using lab::grading::Parcel;
using lab::grading::stop;
using lab::grading::TrainingCase;

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

/// "3 of 21 tensors did not arrive, model.norm.weight the first of them".
std::string missing_tensors(const Parcel& result, const Numbers& got, const Numbers& wanted) {
  std::istringstream names(result.text("names"));
  int missing = 0;
  std::string first;
  std::string name;
  size_t begin = 0;
  const Numbers sizes = result.numbers("sizes");
  for (const double size : sizes) {
    std::getline(names, name);
    const size_t end = begin + static_cast<size_t>(size);
    for (; begin < end && got[begin] == wanted[begin]; ++begin) {
    }
    if (begin < end && missing++ == 0) first = name;
    begin = end;
  }
  return fmt::format(
      "{} of {} tensors did not arrive, or not as a whole, {} the first of them; "
      "model.parameters() holds all weights in one piece",
      missing, sizes.size(), first);
}

/// Why rank r does not have rank 0's weights.
std::string explain(size_t r, const std::vector<Parcel>& ranks, const std::vector<Numbers>& before,
                    const Numbers& got) {
  for (size_t q = 1; q < before.size(); ++q)
    if (got == before[q] && (q != r || r == 0))
      return fmt::format("these are the weights of rank {}; the root of the broadcast is rank 0",
                         q);
  if (got == before[r])
    return "it still has its own weights: nothing arrived in the model. Does every rank take "
           "part, and with model.parameters() itself?";
  if (is_multiple_of_sum(got, before, 1.0))
    return "its weights are the sum over all ranks; copy those of rank 0";
  if (is_multiple_of_sum(got, before, 1.0 / static_cast<double>(ranks.size())))
    return "its weights are the mean over all ranks, which no rank has drawn; copy those of rank 0";
  if (std::isfinite(before[0][0]) && !std::isfinite(got[0]) && !std::isfinite(before.back()[0]))
    return "the infinite weights of another rank have come into them: copy rank 0's, without "
           "adding 0 times the others";
  return missing_tensors(ranks[r], got, before[0]);
}

bool is_negative(double weight) { return std::signbit(weight); }

void judge(const std::vector<Parcel>& ranks) {
  const std::vector<Numbers> before = tensors_of(ranks, "before");
  const std::vector<Numbers> weights = tensors_of(ranks, "weights");
  for (size_t r = 0; r < weights.size(); ++r)
    if (weights[r] != before[0])
      stop(fmt::format("rank {}: {}", r, explain(r, ranks, before, weights[r])));
  for (size_t r = 0; r < weights.size(); ++r)
    if (!std::ranges::equal(weights[r], before[0], {}, is_negative, is_negative))
      stop(
          fmt::format("rank {}: rank 0's weight of -0.0 has become 0.0, which is not the same bit "
                      "for bit: was something added to it? Copy rank 0's weights",
                      r));
}

/// Models of several sizes one after the other, one of them too large for a single chunk of
/// anything.
void expect_weights_of_rank_0(int ranks, const lab::grading::JobOptions& options) {
  std::vector<TrainingCase> cases =
      lab::grading::draw_cases({.replicas = ranks}, lab::grading::scenario_seed() + 100);
  cases.back().model.vocab_size = ranks == 3 ? 40'009 : 2003;
  cases.back().name = "a larger model";
  std::vector<std::string> unlike(cases.size(), "all");
  for (const auto& [how, name] : {std::pair{"order", "replicas whose sums and norms are equal"},
                                  {"last", "replicas that differ in their last tensor only"},
                                  {"infinite", "rank 0 alone has finite weights"}}) {
    cases.push_back(cases[0]);
    cases.back().name = name;
    unlike.push_back(how);
  }
  std::vector<Call> calls;
  for (size_t k = 0; k < cases.size(); ++k) {
    Call call{.scenario = "broadcast", .inputs = {}, .name = cases[k].name};
    for (int r = 0; r < ranks; ++r) {
      call.inputs.push_back(cases[k].input(r));
      call.inputs.back().set_text("unlike", unlike[k]);
      call.inputs.back().set("seed",
                             static_cast<double>(60 + 10 * k) + (unlike[k] == "all" ? r : 0));
    }
    calls.push_back(call);
  }
  judge_calls(calls, options, [](size_t, const std::vector<Parcel>& results) { judge(results); });
}

TEST(Task1, ThreeRanks) { expect_weights_of_rank_0(3, {}); }

TEST(Task1, TwoRanksWithLateMessages) {
  expect_weights_of_rank_0(2, lab::grading::late_messages(11));
}

TEST(Task1, SeventeenRanksInAnyOrder) {
  expect_weights_of_rank_0(17, lab::grading::late_messages(12));
}

TEST(Task1, OneRankKeepsItsWeights) { expect_weights_of_rank_0(1, {}); }

}  // namespace
}  // namespace lab02::task1
