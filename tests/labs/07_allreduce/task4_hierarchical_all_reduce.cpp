// Task 4: groups by host, and an all-reduce that crosses between hosts once per chunk.
#include <gtest/gtest.h>

#include "tests/labs/07_allreduce/reduction.h"

namespace lab07::task4 {
namespace {

constexpr const char* kFunction = "hierarchical_all_reduce";

TEST(Task4, TwoHostsOfThree) {
  expect_cases({{.function = kFunction, .elements = 12, .telling = true, .ranks_per_host = 3},
                {.function = kFunction, .elements = 50, .ranks_per_host = 3}},
               6, {.network = lab::grading::Network::kSimulated, .given = {"2"}});
}

TEST(Task4, OtherHostsInTheNextCall) {
  expect_cases({{.function = kFunction, .elements = 50, .ranks_per_host = 3},
                {.function = kFunction, .elements = 50, .ranks_per_host = 2},
                {.function = kFunction, .elements = 50, .ranks_per_host = 6},
                {.function = kFunction, .elements = 50, .ranks_per_host = 3, .other_hosts = 2},
                {.function = kFunction, .elements = 50, .ranks_per_host = 2, .other_hosts = 3}},
               6, {.network = lab::grading::Network::kSimulated, .given = {"2"}});
}

TEST(Task4, HostsOfAGroup) {
  expect_cases({{.function = kFunction,
                 .telling = true,
                 .colors = {1, 2, 1, 2, 1, 2, 1, 2},
                 .ranks_per_host = 2}},
               8, {.network = lab::grading::Network::kSimulated, .given = {"2"}});
}

TEST(Task4, AnyRanksAnyElementsAnyOrder) {
  expect_any_cases({kFunction}, lab::grading::scenario_seed() + 400, {"2"});
}

TEST(Task4, ScratchAndTime) {
  expect_cases({{.function = kFunction, .elements = 120'000, .ranks_per_host = 3},
                {.function = kFunction, .elements = 7, .ranks_per_host = 3}},
               6, timed(3, {"2"}));
  expect_cases({{.function = kFunction, .elements = 800, .ranks_per_host = 4}}, 8, timed(4, {"2"}));
}

TEST(Task4, TheCallerSaysWhatAHostIs) {
  lab::grading::JobOptions options = timed(3, {"2"});
  options.simulation.costs->between = options.simulation.costs->inside;
  expect_cases({{.function = kFunction, .elements = 12, .telling = true, .ranks_per_host = 2},
                {.function = kFunction, .elements = 12, .telling = true, .ranks_per_host = 6}},
               6, options);
}

TEST(Task4, SizesThatDifferAndADeadRankAreExplained) {
  expect_explained_ends({.function = kFunction, .ranks_per_host = 2}, 4, {3, 5, 8}, {"2"});
}

TEST(Task4, ErrorsLeaveTheFunction) {
  expect_errors_to_leave({.function = kFunction, .elements = 12, .ranks_per_host = 2}, 4, {"2"});
}

TEST(Task4, OverGloo) {
  expect_cases({{.function = kFunction, .elements = 1001, .ranks_per_host = 2}}, 4,
               {.given = {"2"}});
}

}  // namespace
}  // namespace lab07::task4
