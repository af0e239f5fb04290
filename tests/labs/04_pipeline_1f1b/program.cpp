// The program of lab 04 with the student's file.
#include <gtest/gtest.h>

#include "tests/grading/program_run.h"

namespace lab04::program {
namespace {

using lab::grading::expect_program;

TEST(TaskProgram, ThreeRanks) {
  expect_program({"--ranks", "3", "--steps", "5", "--log-every", "1"});
}

TEST(TaskProgram, TwoRanksWithALargerBatch) {
  expect_program({"--ranks", "2", "--batch", "5", "--steps", "3", "--log-every", "1"});
}

TEST(TaskProgram, OneRank) { expect_program({"--ranks", "1", "--steps", "3", "--log-every", "1"}); }

}  // namespace
}  // namespace lab04::program
