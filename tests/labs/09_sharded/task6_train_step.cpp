// Task 6: lab 02's step, in every stage.
#include <gtest/gtest.h>

#include "tests/labs/09_sharded/promises.h"

namespace lab09::task6 {
namespace {

TEST(Task6, Stage1) { expect_steps(1, 3, 61, simulated("6", 62)); }
TEST(Task6, NineRanksOfStage1) { expect_steps(1, 9, 60, simulated("6", 59), kSmallCases); }
TEST(Task6, Stage2) { expect_steps(2, 9, 63, simulated("6", 64)); }
TEST(Task6, Stage3) { expect_steps(3, 2, 65, simulated("6", 66)); }
TEST(Task6, OneRankIsLab01) { expect_steps(1, 1, 67, simulated("6", 68)); }
TEST(Task6, Stage3OverGloo) { expect_steps(3, 3, 69, over_gloo("6"), kCasesOverGloo); }

}  // namespace
}  // namespace lab09::task6
