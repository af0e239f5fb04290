// Task 1: one number of every rank, sorted on all ranks.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/grading/verdict.h"

namespace labNN::task1 {
namespace {

using lab::grading::Expected;
using lab::grading::Mistake;
using lab::grading::Numbers;
using lab::grading::Parcel;

/// Known wrong results, and what is said about each.
std::vector<Mistake> mistakes(const Numbers& numbers, size_t rank) {
  Numbers descending = numbers;
  std::ranges::sort(descending, std::ranges::greater{});
  return {{numbers, "in the order of the ranks, not sorted"},
          {descending, "from the largest to the smallest: the other way round"},
          {Numbers(numbers.size(), numbers[rank]),
           "this rank's own number, once per rank: were the others asked for theirs?"}};
}

Expected expected_list(const Numbers& numbers, size_t rank) {
  Numbers sorted = numbers;
  std::ranges::sort(sorted);
  return {.what = "the sorted numbers",
          .values = sorted,
          .tolerance = {0.0},
          .name = [](size_t i) { return fmt::format("number {}", i); },
          .mistakes = [=] { return mistakes(numbers, rank); }};
}

/// One call after the other in the same processes; a list has one number per rank.
void expect_sorted(const std::vector<Numbers>& lists, const lab::grading::JobOptions& options) {
  std::vector<lab::grading::Call> calls;
  for (const Numbers& numbers : lists) {
    lab::grading::Call call{.scenario = "sorted_numbers",
                            .inputs = std::vector<Parcel>(numbers.size()),
                            .name = fmt::format("numbers {}", fmt::join(numbers, ", "))};
    for (size_t r = 0; r < numbers.size(); ++r) call.inputs[r].set("number", numbers[r]);
    calls.push_back(call);
  }
  judge_calls(calls, options, [&](size_t k, const std::vector<Parcel>& ranks) {
    lab::grading::expect_on_every_rank(numbers_of(ranks, "sorted"),
                                       [&](size_t r) { return expected_list(lists[k], r); });
  });
}

// Simulated ranks first: they find a deadlock at once.
TEST(Task1, LateMessagesInAnyOrder) {
  expect_sorted({{3, 1, 2, -4, 0.5}, {1, 1, 0, 1, 0}, {5, 4, 3, 2, 1}, {3, 1, 2, -4, 0.5}},
                lab::grading::late_messages(11));
}

TEST(Task1, OneRank) { expect_sorted({{7}, {-1}}, lab::grading::late_messages(12)); }

TEST(Task1, ThreeRanks) { expect_sorted({{0, -2, 8}, {2, 2, 1}}, {}); }

}  // namespace
}  // namespace labNN::task1
