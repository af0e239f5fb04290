// Task 4: weights are gathered before their use, the next part's ahead, and freed after it.
#include <gtest/gtest.h>

#include "tests/labs/09_sharded/promises.h"

namespace lab09::task4 {
namespace {

TEST(Task4, ThreeRanks) { expect_steps(3, 3, 41, simulated("4", 42)); }
TEST(Task4, NineRanks) { expect_steps(3, 9, 43, simulated("4", 44)); }
TEST(Task4, OneRank) { expect_steps(3, 1, 45, simulated("4", 46)); }
TEST(Task4, OverGloo) { expect_steps(3, 2, 47, over_gloo("4"), kCasesOverGloo); }

}  // namespace
}  // namespace lab09::task4
