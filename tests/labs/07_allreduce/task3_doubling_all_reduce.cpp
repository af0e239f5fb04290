// Task 3: recursive doubling, with guests folded in.
#include <gtest/gtest.h>

#include "labs/07_allreduce/allreduce.h"
#include "tests/labs/07_allreduce/reduction.h"

namespace lab07::task3 {
namespace {

constexpr const char* kFunction = "doubling_all_reduce";

TEST(Task3, FourRanks) {
  expect_cases({{.function = kFunction, .telling = true}, {.function = kFunction, .seed = 2}}, 4,
               {.network = lab::grading::Network::kSimulated});
}

TEST(Task3, AnyRanksAnyElementsAnyOrder) {
  expect_any_cases({kFunction}, lab::grading::scenario_seed() + 300);
}

TEST(Task3, ScratchAndTime) {
  expect_cases({{.function = kFunction, .elements = 120'000},
                {.function = kFunction, .elements = 3 * kSegment}},
               4, timed());
  expect_cases({{.function = kFunction, .elements = 40'000}}, 3, timed());  // rank 2 needs none
  for (const int ranks : {3, 6, 8, 17, 64})
    expect_cases({{.function = kFunction, .elements = 7}, {.function = kFunction, .elements = 600}},
                 ranks, timed());
}

TEST(Task3, SizesThatDifferAndADeadRankAreExplained) {
  expect_explained_ends({kFunction}, 4, {1, 2, 4});
}

TEST(Task3, ErrorsLeaveTheFunction) { expect_errors_to_leave({kFunction, 12}, 6); }

TEST(Task3, OverGloo) {
  expect_cases({{.function = kFunction, .elements = 1000},
                {.function = kFunction, .elements = 0},
                {.function = kFunction, .elements = 50'001, .op = lab::ReduceOp::kMin}},
               3, {});
}

}  // namespace
}  // namespace lab07::task3
