// Task 3: the form of a split, then its cost against that of the best one.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "common/model/config.h"
#include "tests/grading/verdict.h"

namespace lab04::task3 {
namespace {

using lab::StageSpan;
using lab::grading::Numbers;
using lab::grading::Parcel;

using Counts = std::vector<int64_t>;  // layers per stage

struct SplitCase {
  int64_t layers;
  int stages;
  double head_cost = 0;
};

/// What the slowest stage costs.
double cost_of(const Counts& counts, double head_cost) {
  const auto layers = static_cast<double>(*std::ranges::max_element(counts));
  return std::max(layers, static_cast<double>(counts.back()) + head_cost);
}

/// Tries every number of layers of the last stage; the others share the rest evenly.
Counts best_split(const SplitCase& c) {
  if (c.stages == 1) return {c.layers};
  Counts best;
  double best_cost = std::numeric_limits<double>::infinity();
  for (int64_t last = 1; last <= c.layers - (c.stages - 1); ++last) {
    Counts counts;
    int64_t rest = c.layers - last;
    for (int64_t others = c.stages - 1; others > 0; --others) {
      counts.push_back((rest + others - 1) / others);
      rest -= counts.back();
    }
    counts.push_back(last);
    if (const double cost = cost_of(counts, c.head_cost); cost < best_cost) {
      best = counts;
      best_cost = cost;
    }
  }
  return best;
}

bool is_best(const Counts& counts, const SplitCase& c) {
  return cost_of(counts, c.head_cost) <= cost_of(best_split(c), c.head_cost) * (1 + 1e-9);
}

bool is_inclusive(const SplitCase& c, const std::vector<StageSpan>& spans) {
  for (size_t s = 0; s + 1 < spans.size(); ++s)
    if (spans[s + 1].first_layer != spans[s].last_layer + 1) return false;
  return spans[0].first_layer == 0 && spans.back().last_layer == c.layers - 1;
}

std::string problem_of_layers(const SplitCase& c, const std::vector<StageSpan>& spans) {
  if (is_inclusive(c, spans))
    return "last_layer counts as the stage's own: it is one past the end, a stage has the layers "
           "[first_layer, last_layer)";
  for (size_t s = 0; s < spans.size(); ++s) {
    const int64_t first = spans[s].first_layer;
    const int64_t due = s == 0 ? 0 : spans[s - 1].last_layer;
    if (spans[s].last_layer <= first)
      return fmt::format("stage {} has no layer: [{}, {}); every stage has at least one", s, first,
                         spans[s].last_layer);
    if (first > due)
      return fmt::format("layer {} is on no stage: stage {} begins with layer {}", due, s, first);
    if (first < due && s == 0) return fmt::format("stage 0 begins with layer {}", first);
    if (first < due) return fmt::format("layer {} is on stage {} and on stage {}", first, s - 1, s);
  }
  if (spans.back().last_layer < c.layers)
    return fmt::format("layer {} is on no stage: the last one ends before it",
                       spans.back().last_layer);
  if (spans.back().last_layer > c.layers)
    return fmt::format("the last stage ends with layer {}, the model has {} layers",
                       spans.back().last_layer - 1, c.layers);
  return "";
}

std::string problem_of_flags(const std::vector<StageSpan>& spans) {
  const size_t last = spans.size() - 1;
  for (size_t s = 0; s <= last; ++s) {
    if (s == 0 && !spans[s].embeds)
      return "the first stage does not embed: nothing turns tokens into hidden states";
    if (s > 0 && spans[s].embeds)
      return fmt::format("stage {} embeds: only the first one gets tokens", s);
    if (s == last && !spans[s].has_head)
      return "the last stage does not have the head: nothing makes logits";
    if (s < last && spans[s].has_head)
      return fmt::format("stage {} has the head: only the last one has", s);
  }
  return "";
}

/// Which mistake makes this split, in words.
std::string why_slow(const SplitCase& c, const Counts& counts) {
  const double best_cost = cost_of(best_split(c), c.head_cost) * (1 + 1e-9);
  const int64_t share = c.layers / c.stages;
  const auto is_share = [share](int64_t count) { return count == share; };
  const auto [least, most] = std::ranges::minmax_element(counts);
  const auto [fewest, largest] = std::minmax_element(counts.begin(), counts.end() - 1);
  const double rounded = std::round(c.head_cost);
  const std::string hint =
      rounded > 0 && rounded != c.head_cost && is_best(counts, {c.layers, c.stages, rounded})
          ? fmt::format(" (right for a head that costs {:g}: is head_cost rounded?)", rounded)
          : "";
  if (c.layers % c.stages > 0 && std::all_of(counts.begin(), counts.end() - 1, is_share))
    return "the remainder of dividing the layers evenly is all on the last stage, which also has "
           "the head to compute";
  if (*most - *least <= 1)
    return "the layers are divided evenly, as if the head cost nothing: the stage with the head "
           "takes fewer layers";
  if (is_best({counts.rbegin(), counts.rend()}, c))
    return "the layers are divided as if the first stage had the head";
  if (*largest - *fewest > 1 &&
      std::count(counts.begin() + 1, counts.end() - 1, *largest) == std::ssize(counts) - 2)
    return "the first stage has too few layers: the embedding costs nothing";
  if (*largest - *fewest > 1)
    return "the layers are not divided evenly among the stages without the head: two of them "
           "differ by more than one layer";
  const bool too_many = static_cast<double>(counts.back()) + c.head_cost > best_cost;
  return (too_many
              ? "the last stage has too many layers: it also has the head to compute"
              : "the last stage has too few layers: with more, it would still not be the slowest") +
         hint;
}

std::string problem(const SplitCase& c, const std::vector<StageSpan>& spans) {
  if (static_cast<int>(spans.size()) != c.stages)
    return fmt::format("returns {} spans; there must be one per stage, {}", spans.size(), c.stages);
  if (std::string form = problem_of_layers(c, spans); !form.empty()) return form;
  if (std::string flags = problem_of_flags(spans); !flags.empty()) return flags;
  Counts counts;
  for (const StageSpan& span : spans) counts.push_back(span.last_layer - span.first_layer);
  if (is_best(counts, c)) return "";
  const Counts best = best_split(c);
  return fmt::format(
      "{}\nlayers per stage: {}; the slowest stage costs {:.10g} layers. With {} it is {:.10g}",
      why_slow(c, counts), fmt::join(counts, ", "), cost_of(counts, c.head_cost),
      fmt::join(best, ", "), cost_of(best, c.head_cost));
}

void judge(SplitCase c, const Numbers& numbers) {
  std::vector<StageSpan> spans;
  for (size_t n = 0; n + 3 < numbers.size(); n += 4)
    spans.push_back({static_cast<int64_t>(numbers[n]), static_cast<int64_t>(numbers[n + 1]),
                     numbers[n + 2] != 0, numbers[n + 3] != 0});
  if (const std::string message = problem(c, spans); !message.empty())
    lab::grading::stop(
        fmt::format("split({}, {}, {:g}): {}", c.layers, c.stages, c.head_cost, message));
}

/// The same models again and again in one process, each time with another head.
void expect_splits(const std::vector<SplitCase>& models, const Numbers& head_costs) {
  Parcel input;
  Numbers layers;
  Numbers stages;
  for (const SplitCase& model : models) {
    layers.push_back(static_cast<double>(model.layers));
    stages.push_back(model.stages);
  }
  input.set("layers", layers);
  input.set("stages", stages);
  std::vector<lab::grading::Call> calls;
  for (const double head_cost : head_costs) {
    input.set("head_cost", head_cost);
    calls.push_back({.scenario = "splits",
                     .inputs = {input},
                     .name = fmt::format("a head that costs {:g} layers", head_cost)});
  }
  judge_calls(calls, {.network = lab::grading::Network::kNone},
              [&](size_t k, const std::vector<Parcel>& ranks) {
                for (size_t i = 0; i < models.size(); ++i)
                  judge({models[i].layers, models[i].stages, head_costs[k]},
                        ranks[0].numbers(fmt::format("spans.{}", i)));
              });
}

/// Every number of layers up to 20 on every number of stages, and some larger models.
std::vector<SplitCase> many_models(std::mt19937_64& generator) {
  std::vector<SplitCase> models;
  for (int64_t layers = 1; layers <= 20; ++layers)
    for (int stages = 1; stages <= layers; ++stages) models.push_back({layers, stages});
  models.insert(
      models.end(),
      {{24, 8}, {32, 5}, {80, 16}, {126, 16}, {200, 2}, {1000, 3}, {100, 10}, {300, 128}});
  for (int64_t least = 13; least < 133; least += 5) {
    const auto layers = least + static_cast<int64_t>(generator() % 5);
    models.push_back({layers, 1 + static_cast<int>(generator() % 20)});
    models.back().stages = std::min(models.back().stages, static_cast<int>(layers));
  }
  return models;
}

TEST(Task3, ThreeStages) { expect_splits({{6, 3}, {12, 3}}, {0, 0.8, 3, 6.58, 0}); }

TEST(Task3, OneStageIsTheWholeModel) { expect_splits({{6, 1}, {1, 1}}, {0, 0.8, 6}); }

TEST(Task3, OneLayerPerStage) { expect_splits({{3, 3}, {6, 6}, {2, 2}}, {0, 0.8, 6}); }

TEST(Task3, AnyModelWithAnyHead) {
  std::mt19937_64 generator(lab::grading::scenario_seed());
  const auto draw = [&] { return static_cast<double>(generator() % 1'200) / 100; };
  expect_splits(
      many_models(generator),
      {0.84, 0,      6.58, 0.5,  1,    2.5,   100,  3,     0.25,   1.5,     draw(),    draw(),
       0.84, draw(), 1e6,  0.02, 3.99, 0.996, 1.03, 2.004, 0.9999, 2.00001, 0.9999999, 0});
}

}  // namespace
}  // namespace lab04::task3
