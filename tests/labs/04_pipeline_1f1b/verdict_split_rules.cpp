// Judging a split: its form, then its cost against that of every other split.
#include "tests/labs/04_pipeline_1f1b/verdict_split_rules.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>

namespace lab04 {
namespace {

using Counts = std::vector<int64_t>;  // layers per stage

/// What the slowest stage costs.
double cost_of(const Counts& counts, double head_cost) {
  const auto layers = static_cast<double>(*std::ranges::max_element(counts));
  return std::max(layers, static_cast<double>(counts.back()) + head_cost);
}

/// Tries every way to give each stage at least one layer.
void try_all(Counts& begun, int64_t left, const SplitCase& c, Counts& best, double& best_cost) {
  const int64_t stages_left = c.stages - static_cast<int64_t>(begun.size());
  if (stages_left == 1) {
    begun.push_back(left);
    if (const double cost = cost_of(begun, c.head_cost); cost < best_cost) {
      best = begun;
      best_cost = cost;
    }
    begun.pop_back();
    return;
  }
  for (int64_t count = 1; count <= left - (stages_left - 1); ++count) {
    begun.push_back(count);
    try_all(begun, left - count, c, best, best_cost);
    begun.pop_back();
  }
}

Counts best_split(const SplitCase& c) {
  Counts begun;
  Counts best;
  double best_cost = std::numeric_limits<double>::infinity();
  try_all(begun, c.layers, c, best, best_cost);
  return best;
}

bool is_inclusive(const SplitCase& c, const std::vector<Span>& spans) {
  for (size_t s = 0; s + 1 < spans.size(); ++s)
    if (spans[s + 1].first_layer != spans[s].last_layer + 1) return false;
  return spans[0].first_layer == 0 && spans.back().last_layer == c.layers - 1;
}

std::string problem_of_layers(const SplitCase& c, const std::vector<Span>& spans) {
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

std::string problem_of_flags(const std::vector<Span>& spans) {
  const size_t last = spans.size() - 1;
  for (size_t s = 0; s <= last; ++s) {
    if (s == 0 && !spans[s].embeds)
      return "the first stage does not embed: nobody turns tokens into hidden states";
    if (s > 0 && spans[s].embeds)
      return fmt::format("stage {} embeds: only the first one gets tokens", s);
    if (s == last && !spans[s].has_head)
      return "the last stage does not have the head: nobody makes logits";
    if (s < last && spans[s].has_head)
      return fmt::format("stage {} has the head: only the last one has", s);
  }
  return "";
}

std::string why_slow(const SplitCase& c, const Counts& counts, double best_cost) {
  const int64_t share = c.layers / c.stages;
  const auto is_share = [share](int64_t count) { return count == share; };
  if (c.layers % c.stages > 0 && std::all_of(counts.begin(), counts.end() - 1, is_share))
    return "what is left over when the layers are shared out evenly all lies on the last stage, "
           "which has the head to pay for as well";
  const auto [least, most] = std::ranges::minmax_element(counts);
  if (*most - *least <= 1)
    return "the layers are shared out evenly, as if the head cost nothing: who has the head takes "
           "fewer layers";
  if (cost_of({counts.rbegin(), counts.rend()}, c.head_cost) <= best_cost)
    return "the layers are shared out as if the first stage had the head";
  const auto [fewest, largest] = std::minmax_element(counts.begin(), counts.end() - 1);
  if (*largest - *fewest > 1) return "the stages without the head do not share their layers evenly";
  if (static_cast<double>(counts.back()) + c.head_cost > best_cost)
    return "the last stage has too many layers, with the head to pay for as well";
  return "the last stage has too few layers: the others have them";
}

}  // namespace

std::string split_problem(const SplitCase& c, const std::vector<Span>& spans) {
  const std::string call = fmt::format("split({}, {}, {:g}): ", c.layers, c.stages, c.head_cost);
  if (static_cast<int>(spans.size()) != c.stages)
    return call + fmt::format("returns {} spans; one per stage are {}", spans.size(), c.stages);
  if (const std::string problem = problem_of_layers(c, spans); !problem.empty())
    return call + problem;
  if (const std::string problem = problem_of_flags(spans); !problem.empty()) return call + problem;

  Counts counts;
  for (const Span& span : spans) counts.push_back(span.last_layer - span.first_layer);
  const Counts best = best_split(c);
  const double best_cost = cost_of(best, c.head_cost);
  const double cost = cost_of(counts, c.head_cost);
  if (cost <= best_cost * (1 + 1e-9)) return "";
  return fmt::format(
      "{}{}\nlayers per stage: {}; the slowest stage costs {:g} layers. With {} it is {:g}", call,
      why_slow(c, counts, best_cost * (1 + 1e-9)), fmt::join(counts, ", "), cost,
      fmt::join(best, ", "), best_cost);
}

}  // namespace lab04
