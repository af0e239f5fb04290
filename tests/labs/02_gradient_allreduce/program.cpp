// The program of lab 02 with the student's file.
#include <gtest/gtest.h>

#include "tests/grading/program_run.h"

namespace lab02::program {
namespace {

using lab::grading::expect_program;

TEST(TaskProgram, ThreeRanks) {
  expect_program({"--ranks", "3", "--steps", "5", "--accumulate", "2", "--log-every", "1"});
}

TEST(TaskProgram, OneRank) { expect_program({"--ranks", "1", "--steps", "4", "--log-every", "1"}); }

}  // namespace
}  // namespace lab02::program
