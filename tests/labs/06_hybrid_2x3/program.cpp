// The program of lab 06 with the student's file.
#include <gtest/gtest.h>

#include "tests/grading/program_run.h"

namespace lab06::program {
namespace {

using lab::grading::expect_program;

TEST(TaskProgram, TwoPipelinesOfThreeStages) {
  expect_program({"--dp", "2", "--pp", "3", "--microbatches", "2", "--waves", "2", "--steps", "4",
                  "--log-every", "1"});
}

TEST(TaskProgram, TwoPipelinesOfOneStage) {
  expect_program({"--dp", "2", "--pp", "1", "--steps", "3", "--log-every", "1"});
}

}  // namespace
}  // namespace lab06::program
