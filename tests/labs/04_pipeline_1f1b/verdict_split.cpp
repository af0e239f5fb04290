// Verdict on task 1: against the best of all splits, for many models.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "common/grading/verdict.h"
#include "tests/labs/04_pipeline_1f1b/verdict_split_rules.h"

namespace lab04 {
namespace {

using lab::grading::Parcel;

using Numbers = std::vector<double>;

constexpr int64_t kMostLayers = 12;
constexpr int kMostStages = 6;

std::vector<Span> spans_from(const Numbers& numbers) {
  std::vector<Span> spans;
  for (size_t i = 0; i + 3 < numbers.size(); i += 4)
    spans.push_back({static_cast<int64_t>(numbers[i]), static_cast<int64_t>(numbers[i + 1]),
                     numbers[i + 2] != 0, numbers[i + 3] != 0});
  return spans;
}

void expect_splits(const std::vector<SplitCase>& cases) {
  Numbers layers;
  Numbers stages;
  Numbers head_costs;
  for (const SplitCase& c : cases) {
    layers.push_back(static_cast<double>(c.layers));
    stages.push_back(c.stages);
    head_costs.push_back(c.head_cost);
  }
  Parcel input;
  input.set("layers", layers);
  input.set("stages", stages);
  input.set("head_costs", head_costs);
  const Parcel result = lab::grading::student("splits", input);
  for (size_t i = 0; i < cases.size(); ++i) {
    const Numbers numbers = result.numbers(fmt::format("spans.{}", i));
    if (const std::string problem = split_problem(cases[i], spans_from(numbers)); !problem.empty())
      lab::grading::stop(problem);
  }
}

/// Every number of layers on every number of stages.
std::vector<SplitCase> grid(const Numbers& head_costs) {
  std::vector<SplitCase> cases;
  for (double head_cost : head_costs)
    for (int64_t layers = 1; layers <= kMostLayers; ++layers)
      for (int stages = 1; stages <= std::min<int64_t>(kMostStages, layers); ++stages)
        cases.push_back({layers, stages, head_cost});
  return cases;
}

TEST(Task1, SixLayersOnThreeStages) { expect_splits({{6, 3, 0}, {6, 3, 0.8}, {6, 3, 3}}); }

TEST(Task1, OneStageIsTheWholeModel) { expect_splits({{6, 1, 0}, {6, 1, 0.8}, {1, 1, 6}}); }

TEST(Task1, AFreeHeadMeansEvenShares) { expect_splits(grid({0})); }

TEST(Task1, AHeadLikeALayerOrLess) { expect_splits(grid({0.5, 0.8, 1})); }

TEST(Task1, AHeadLikeSeveralLayers) { expect_splits(grid({2.5, 6, 100})); }

}  // namespace
}  // namespace lab04
