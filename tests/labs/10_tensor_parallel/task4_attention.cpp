// Task 4: attention by heads, with one all-reduce each way.
#include <gtest/gtest.h>

#include "tests/labs/10_tensor_parallel/blocks.h"

namespace lab10::task4 {
namespace {

using lab::grading::late_messages;

TEST(Task4, TwoRanksLateMessages) { expect_block(Block::kAttention, 2, 41, late_messages(41)); }
TEST(Task4, GroupsOfTwoRanks) { expect_block(Block::kAttention, 2, 45, late_messages(45), 2); }
TEST(Task4, SixRanks) { expect_block(Block::kAttention, 6, 44, late_messages(44)); }
TEST(Task4, OneRankIsTheWholeLayer) { expect_block(Block::kAttention, 1, 43, late_messages(43)); }
TEST(Task4, ThreeRanksOverGloo) { expect_block(Block::kAttention, 3, 42, {}); }

}  // namespace
}  // namespace lab10::task4
