// Task 1: rank 0 collects, combines and sends back.
#include <gtest/gtest.h>

#include "labs/07_allreduce/allreduce.h"
#include "tests/labs/07_allreduce/reduction.h"

namespace lab07::task1 {
namespace {

constexpr const char* kFunction = "reduce_at_root";

TEST(Task1, ThreeRanksSum) {
  expect_cases({{.function = kFunction, .telling = true}, {.function = kFunction, .seed = 2}}, 3,
               {.network = lab::grading::Network::kSimulated});
}

TEST(Task1, AnyRanksAnyElementsAnyOrder) {
  expect_any_cases({kFunction}, lab::grading::scenario_seed() + 100);
  expect_cases({{.function = kFunction, .elements = 5}}, 64,
               {.network = lab::grading::Network::kSimulated});
}

TEST(Task1, ScratchAndTime) {
  expect_cases({{.function = kFunction, .elements = 120'000},
                {.function = kFunction, .elements = 3 * kSegment}},
               3, timed());
  expect_cases({{.function = kFunction, .elements = 7}, {.function = kFunction, .elements = 600}},
               6, timed());
}

TEST(Task1, SizesThatDifferAndADeadRankAreExplained) {
  expect_explained_ends({kFunction}, 3, {1, 2});
}

TEST(Task1, ErrorsLeaveTheFunction) { expect_errors_to_leave({kFunction, 12}, 3); }

TEST(Task1, OverGloo) {
  expect_cases({{.function = kFunction, .elements = 1000},
                {.function = kFunction, .elements = 0},
                {.function = kFunction, .elements = 50'001, .op = lab::ReduceOp::kMax}},
               3, {});
}

}  // namespace
}  // namespace lab07::task1
