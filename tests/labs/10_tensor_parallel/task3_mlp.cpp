// Task 3: SwiGLU by columns, with one all-reduce each way.
#include <gtest/gtest.h>

#include "tests/labs/10_tensor_parallel/blocks.h"

namespace lab10::task3 {
namespace {

using lab::grading::late_messages;

TEST(Task3, TwoRanksLateMessages) { expect_block(Block::kMlp, 2, 31, late_messages(31)); }
TEST(Task3, GroupsOfTwoRanks) { expect_block(Block::kMlp, 2, 35, late_messages(35), 2); }
TEST(Task3, SixRanks) { expect_block(Block::kMlp, 6, 34, late_messages(34)); }
TEST(Task3, OneRankIsTheWholeLayer) { expect_block(Block::kMlp, 1, 33, late_messages(33)); }
TEST(Task3, ThreeRanksOverGloo) { expect_block(Block::kMlp, 3, 32, {}); }

}  // namespace
}  // namespace lab10::task3
