// The program of lab 03 with the student's file.
#include <gtest/gtest.h>

#include "tests/grading/program_run.h"

namespace lab03::program {
namespace {

using lab::grading::expect_program;

TEST(TaskProgram, ThreeRanks) {
  expect_program({"--ranks", "3", "--steps", "3", "--every", "2", "--drift"});
}

TEST(TaskProgram, ShardsThatDiffer) {
  expect_program({"--ranks", "2", "--steps", "3", "--every", "2", "--shards", "by-vocabulary"});
}

TEST(TaskProgram, OneRank) { expect_program({"--ranks", "1", "--steps", "3", "--every", "2"}); }

}  // namespace
}  // namespace lab03::program
