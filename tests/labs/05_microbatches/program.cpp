// The program of lab 05 with the student's file.
#include <gtest/gtest.h>

#include "tests/grading/program_run.h"

namespace lab05::program {
namespace {

using lab::grading::expect_program;

TEST(TaskProgram, ThreeStagesWithOneForwardOneBackward) {
  expect_program({"--ranks", "3", "--microbatches", "4", "--steps", "4", "--log-every", "1"});
}

TEST(TaskProgram, TwoStagesWithGpipeInWaves) {
  expect_program({"--ranks", "2", "--microbatches", "3", "--waves", "2", "--schedule", "gpipe",
                  "--steps", "3", "--log-every", "1"});
}

TEST(TaskProgram, OneStage) {
  expect_program(
      {"--ranks", "1", "--microbatches", "2", "--waves", "2", "--steps", "3", "--log-every", "1"});
}

}  // namespace
}  // namespace lab05::program
