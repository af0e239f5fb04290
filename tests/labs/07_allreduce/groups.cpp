#include "tests/labs/07_allreduce/groups.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>
#include <random>

namespace lab07 {
namespace {

using lab::ReduceOp;
using lab::grading::Expected;
using lab::grading::Mistake;
using lab::grading::Numbers;
using lab::grading::stop;
using Inputs = std::vector<std::vector<float>>;

double combined(ReduceOp op, double a, double b) {
  return op == ReduceOp::kSum ? a + b : op == ReduceOp::kMin ? std::min(a, b) : std::max(a, b);
}

Numbers combined_over(const Inputs& inputs, ReduceOp op) {
  Numbers result(inputs[0].begin(), inputs[0].end());
  for (size_t r = 1; r < inputs.size(); ++r)
    for (size_t i = 0; i < result.size(); ++i)
      result[i] = combined(op, result[i], static_cast<double>(inputs[r][i]));
  return result;
}

/// Per element: 1e-6 of the sum of the magnitudes.
Numbers tolerance_of(const Inputs& inputs, ReduceOp op) {
  constexpr double kTolerance = 1e-6;
  Numbers tolerance(inputs[0].size(), 0.0);
  for (const std::vector<float>& own : inputs)
    for (size_t i = 0; i < own.size(); ++i)
      tolerance[i] += op == ReduceOp::kSum ? kTolerance * std::abs(static_cast<double>(own[i])) : 0;
  return tolerance;
}

std::string place_of(const Case& c, int64_t element, size_t ranks) {
  const bool has_hosts = c.function == "hierarchical_all_reduce" && c.ranks_per_host > 1;
  if (!c.function.starts_with("ring") && !has_hosts) return fmt::format("element {}", element);
  const int chunks = has_hosts ? c.ranks_per_host : static_cast<int>(ranks);
  int k = 0;
  while (chunk_of(c.elements, k, chunks).second <= element) ++k;
  return fmt::format(
      "element {} (chunk {} of {}{})", element, k, chunks,
      has_hosts ? fmt::format(", which rank {} of each host reduces across hosts", k) : "");
}

/// What is wrong with a sum of powers of 8, one per rank; empty if it cannot be told.
std::string whose_numbers(double sum, size_t ranks) {
  constexpr int kBase = 8;
  if (sum < 0 || sum != std::floor(sum) || sum >= std::pow(kBase, ranks)) return "";
  auto rest = static_cast<int64_t>(sum);
  std::vector<std::string> words;
  for (size_t r = 0; r < ranks; ++r, rest /= kBase) {
    if (rest % kBase == 0) words.push_back(fmt::format("the number of rank {} is missing", r));
    if (rest % kBase > 1)
      words.push_back(fmt::format("the number of rank {} was added {} times", r, rest % kBase));
  }
  return fmt::format("{}", fmt::join(words, ", "));
}

/// As doubling_all_reduce does if it hands the guests' numbers over by addition.
Numbers combined_after_sums(Inputs inputs, ReduceOp op) {
  const size_t p = std::bit_floor(inputs.size());
  for (size_t r = p; r < inputs.size(); ++r)
    for (size_t i = 0; i < inputs[r].size(); ++i) inputs[r - p][i] += inputs[r][i];
  inputs.resize(p);
  return combined_over(inputs, op);
}

/// Of a wrong result, on rank `self`.
std::vector<Mistake> mistakes(const Case& c, const Inputs& inputs, size_t self) {
  std::vector<Mistake> all;
  const Numbers own(inputs[self].begin(), inputs[self].end());
  all.push_back(
      {own, "still this rank's own numbers: nothing from the other ranks was added to them"});
  if (c.op != ReduceOp::kSum)
    all.push_back({combined_over(inputs, ReduceOp::kSum),
                   "the sum, although the smallest or the largest was asked for: is `op` passed on "
                   "to combine?"});
  if (c.op != ReduceOp::kSum && c.function == "doubling_all_reduce")
    all.push_back({combined_after_sums(inputs, c.op),
                   "the guests' numbers (of ranks p and above) were added, although the smallest "
                   "or the largest was asked for"});
  for (size_t missing = 0; missing < inputs.size() && inputs.size() > 2; ++missing) {
    Inputs others = inputs;
    others.erase(others.begin() + static_cast<std::ptrdiff_t>(missing));
    all.push_back(
        {combined_over(others, c.op), fmt::format("the numbers of rank {} are missing", missing)});
  }
  return all;
}

/// The elements that rank `self` must have right: of a reduce-scatter its own chunk.
std::pair<int64_t, int64_t> judged(const Case& c, size_t self, size_t ranks) {
  if (c.function != "ring_reduce_scatter") return {0, c.elements};
  return chunk_of(c.elements, static_cast<int>(self), static_cast<int>(ranks));
}

Numbers part_of(const Numbers& numbers, std::pair<int64_t, int64_t> range) {
  return {numbers.begin() + range.first, numbers.begin() + range.second};
}

/// A chunk that the rank has finished in place of its own; -1: none.
int finished_chunk(const Case& c, const Numbers& got, double right, size_t ranks) {
  const int n = static_cast<int>(ranks);
  for (int k = 0; k < n; ++k) {
    const Numbers part = part_of(got, chunk_of(c.elements, k, n));
    if (!part.empty() && std::ranges::count(part, right) == std::ssize(part)) return k;
  }
  return -1;
}

void expect_sum(const Case& c, const std::vector<Numbers>& got, double right) {
  for (size_t r = 0; r < got.size(); ++r) {
    const auto [first, last] = judged(c, r, got.size());
    for (int64_t i = first; i < last; ++i) {
      const double number = got[r][static_cast<size_t>(i)];
      if (number == right) continue;
      const int finished = finished_chunk(c, got[r], right, got.size());
      if (c.function == "ring_reduce_scatter" && finished >= 0)
        stop(fmt::format("rank {} ends with chunk {} complete; it should be chunk {}", r, finished,
                         r));
      const std::string why = whose_numbers(number, got.size());
      stop(
          fmt::format("rank {}, {}: {}\nrank r contributes 8^r to every element: expected {:.9g}, "
                      "got {:.9g}",
                      r, place_of(c, i, got.size()),
                      why.empty() ? "not a sum of the ranks' numbers" : why, right, number));
    }
  }
}

/// `right[i]`: the number of the rank whose chunk element i belongs to.
void expect_gathered(const Case& c, const std::vector<Numbers>& got, const Numbers& right) {
  for (size_t r = 0; r < got.size(); ++r)
    for (size_t i = 0; i < right.size(); ++i)
      if (got[r][i] != right[i])
        stop(
            fmt::format("rank {}, {}: holds the number of rank {}, not that of rank {}, which has "
                        "finished this chunk",
                        r, place_of(c, static_cast<int64_t>(i), got.size()),
                        std::log2(got[r][i]) / 3, std::log2(right[i]) / 3));
}

}  // namespace

std::vector<std::vector<int>> groups_of(const Case& c, int ranks) {
  std::map<int, std::vector<int>> groups;  // by color; numbered from the highest rank down
  for (int r = ranks - 1; r >= 0; --r)
    groups[c.colors.empty() ? 1 : c.colors[static_cast<size_t>(r)]].push_back(r);
  groups.erase(0);
  std::vector<std::vector<int>> result;
  for (auto& [color, members] : groups) {
    if (c.colors.empty()) std::ranges::reverse(members);
    result.push_back(members);
  }
  return result;
}

int place_in(const std::vector<std::vector<int>>& groups, int rank) {
  for (const std::vector<int>& members : groups) {
    const auto found = std::ranges::find(members, rank);
    if (found != members.end()) return static_cast<int>(found - members.begin());
  }
  return 0;
}

std::vector<float> numbers_of(const Case& c, int rank, int place) {
  if (c.telling)
    return std::vector<float>(static_cast<size_t>(c.elements),
                              static_cast<float>(std::pow(8, place)));
  std::mt19937_64 random(c.seed * 1000 + static_cast<uint64_t>(rank));
  std::normal_distribution<float> distribution;
  std::vector<float> numbers(static_cast<size_t>(c.elements));
  for (float& number : numbers) number = distribution(random);
  return numbers;
}

void expect_results(const Case& c, const std::vector<Numbers>& got, const Inputs& inputs) {
  const size_t ranks = got.size();
  const bool gathers = c.function == "ring_all_gather";
  Numbers right = combined_over(inputs, c.op);
  Numbers tolerance = tolerance_of(inputs, c.op);
  if (gathers) {
    tolerance.assign(tolerance.size(), 0.0);
    for (size_t k = 0; k < ranks; ++k) {
      const auto [first, last] = chunk_of(c.elements, static_cast<int>(k), static_cast<int>(ranks));
      std::copy(inputs[k].begin() + first, inputs[k].begin() + last, right.begin() + first);
    }
  }
  if (c.telling && c.elements > 0 && !gathers) expect_sum(c, got, right[0]);
  if (c.telling && gathers) expect_gathered(c, got, right);
  std::vector<Numbers> parts;
  for (size_t r = 0; r < ranks; ++r) parts.push_back(part_of(got[r], judged(c, r, ranks)));
  lab::grading::expect_on_every_rank(parts, [&](size_t r) {
    const auto range = judged(c, r, ranks);
    Expected expected{.what = gathers ? "the gathered numbers" : "the result",
                      .values = part_of(right, range),
                      .tolerance = part_of(tolerance, range),
                      .name = [&, range](size_t i) {
                        return place_of(c, static_cast<int64_t>(i) + range.first, ranks);
                      }};
    if (!gathers)
      expected.mistakes = [&, r, range] {
        std::vector<Mistake> known = mistakes(c, inputs, r);
        for (Mistake& mistake : known) mistake.values = part_of(mistake.values, range);
        return known;
      };
    return expected;
  });
  if (c.function != "ring_reduce_scatter")
    lab::grading::expect_same_bits(got, "the numbers after " + c.function);
}

}  // namespace lab07
