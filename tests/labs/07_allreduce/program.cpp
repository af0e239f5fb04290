// The program of lab 07 with the student's file.
#include <gtest/gtest.h>

#include "tests/grading/program_run.h"

namespace lab07::program {
namespace {

using lab::grading::expect_program;

TEST(TaskProgram, Ring) { expect_program({"--ranks", "3", "--steps", "4", "--log-every", "1"}); }

TEST(TaskProgram, Hierarchical) {
  expect_program({"--ranks", "4", "--steps", "3", "--log-every", "1", "--allreduce", "hierarchical",
                  "--hosts", "2"});
}

}  // namespace
}  // namespace lab07::program
