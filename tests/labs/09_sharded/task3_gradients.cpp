// Task 3: a part has a gradient during its backward pass only.
#include <gtest/gtest.h>

#include "tests/labs/09_sharded/promises.h"

namespace lab09::task3 {
namespace {

TEST(Task3, ThreeRanks) { expect_steps(2, 3, 31, simulated("3", 32)); }
TEST(Task3, NineRanksOfStage3) { expect_steps(3, 9, 33, simulated("3", 34)); }
TEST(Task3, NineRanksOfStage2) { expect_steps(2, 9, 30, simulated("3", 39), kSmallCases); }
TEST(Task3, OneRank) { expect_steps(2, 1, 35, simulated("3", 36)); }
TEST(Task3, OverGloo) { expect_steps(2, 2, 37, over_gloo("3"), kCasesOverGloo); }

}  // namespace
}  // namespace lab09::task3
