// The program of lab 11 with the student's file.
#include <gtest/gtest.h>

#include "tests/grading/program_run.h"

namespace lab11::program {
namespace {

using lab::grading::expect_program;

TEST(TaskProgram, Server) {
  expect_program({"--steps", "6", "--workers", "4", "--staleness", "2", "--slow", "1:3", "--kill",
                  "2@2.5", "--join", "5@3"});
}

TEST(TaskProgram, Federated) {  // all take part, so that every right sample is the same
  expect_program({"--federated", "--steps", "3", "--clients", "4", "--per-round", "4",
                  "--local-steps", "2", "--outer-momentum", "0.5", "--drop", "0.3"});
}

}  // namespace
}  // namespace lab11::program
