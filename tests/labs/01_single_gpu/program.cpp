// The program of lab 01 with the student's file.
#include <gtest/gtest.h>

#include "tests/grading/program_run.h"

namespace lab01::program {
namespace {

using lab::grading::expect_program;

TEST(TaskProgram, ClippedAdam) {
  expect_program({"--steps", "6", "--accumulate", "3", "--warmup", "0"});
}

TEST(TaskProgram, Sgd) {
  expect_program({"--steps", "4", "--optimizer", "sgd", "--lr", "0.1", "--clip", "0"});
}

}  // namespace
}  // namespace lab01::program
