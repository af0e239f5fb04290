// The program of lab 09 with the student's file.
#include <gtest/gtest.h>

#include "tests/grading/program_run.h"

namespace lab09::program {
namespace {

using lab::grading::expect_program;

TEST(TaskProgram, ThreeRanksOfStage3) {
  expect_program({"--ranks", "3", "--steps", "5", "--accumulate", "2", "--log-every", "1"});
}

TEST(TaskProgram, TwoRanksOfStage1) {
  expect_program({"--ranks", "2", "--steps", "4", "--log-every", "1", "--shard", "1"});
}

}  // namespace
}  // namespace lab09::program
