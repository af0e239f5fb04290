// Task 3: tickets are handed out, and their items come back when a worker leaves.
#include <gtest/gtest.h>

#include "tests/grading/verdict.h"
#include "tests/labs/11_parameter_server/scripts.h"

namespace lab11::task3 {
namespace {

using entries::kLeave;
using entries::kPull;
using entries::kPush;

TEST(Task3, NothingGoesWrong) {
  expect_scripts({{.name = "two workers",
                   .n = 2,
                   .s = 1,
                   .items = 6,
                   .steps = {{kPull, 0},
                             {kPull, 1},
                             {kPush, 1},
                             {kPull, 1},
                             {kPush, 0},
                             {kPush, 2},
                             {kPull, 0},
                             {kPull, 1},
                             {kPush, 3},
                             {kPull, 0},
                             {kPush, 4},
                             {kPull, 1},
                             {kPush, 5},
                             {kPull, 0},
                             {kPull, 1}}},
                  {.name = "s = 0: who is done waits",
                   .n = 2,
                   .items = 4,
                   .steps = {{kPull, 0},
                             {kPull, 1},
                             {kPull, 2},
                             {kPush, 0},
                             {kPull, 0},
                             {kPull, 2},
                             {kPush, 1},
                             {kPull, 2},
                             {kPull, 0},
                             {kPull, 1}}}},
                 "3");
}

TEST(Task3, WorkersLeave) {
  expect_scripts(
      {{.name = "one leaves, another takes over",
        .n = 2,
        .s = 2,
        .items = 6,
        .steps = {{kPull, 0}, {kPull, 1}, {kLeave, 0}, {kPush, 1}, {kPull, 1}, {kPush, 2}}},
       {.name = "two leave; the smallest item comes first",
        .n = 3,
        .s = 2,
        .items = 9,
        .steps = {{kPull, 0},
                  {kPull, 1},
                  {kPull, 2},
                  {kLeave, 2},
                  {kLeave, 0},
                  {kPull, 3},
                  {kPull, 4},
                  {kPush, 3},
                  {kPush, 4},
                  {kPush, 1}}},
       {.name = "one without a lease leaves",
        .n = 2,
        .items = 4,
        .steps = {{kLeave, 5}, {kPull, 0}, {kPush, 0}, {kLeave, 0}, {kPull, 1}, {kPush, 1}}},
       {.name = "all items are handed out, and one comes back",
        .n = 1,
        .s = 9,
        .items = 2,
        .steps = {{kPull, 0},
                  {kPull, 1},
                  {kPull, 2},
                  {kLeave, 0},
                  {kPull, 2},
                  {kPush, 2},
                  {kPush, 1},
                  {kPull, 0}}},
       {.name = "one leaves after an update that it did not see",
        .n = 1,
        .s = 9,
        .items = 5,
        .steps = {{kPull, 0}, {kPull, 1}, {kPush, 1}, {kLeave, 0}, {kPull, 1}, {kPush, 2}}}},
      "3");
}

TEST(Task3, WorkersAskAgain) {
  expect_scripts(
      {{.name = "the reply to a pull was lost",
        .n = 2,
        .s = 1,
        .items = 6,
        .steps = {{kPull, 0},
                  {kPull, 0},
                  {kPush, 0},
                  {kPush, 1},
                  {kPull, 1},
                  {kPull, 0},
                  {kPull, 1},
                  {kPush, 4},
                  {kPush, 3}}},
       {.name = "and nothing may start now",
        .n = 1,
        .s = 0,
        .items = 3,
        .steps =
            {{kPull, 0}, {kPull, 1}, {kPull, 0}, {kPull, 1}, {kPush, 0}, {kPush, 1}, {kPull, 1}}}},
      "3");
}

TEST(Task3, AllHaveLeft) {
  Script script{.name = "60 items are returned",
                .n = 2,
                .s = 40,
                .steps = {{kPull, 0}, {kPull, 1}, {kPull, 1}, {kLeave, 0}, {kPull, 2}, {kPull, 2}},
                .start = {.next_item = 60, .next_ticket = 60}};
  for (int64_t item = 0; item < 60; ++item) script.start.returned.insert(item);
  expect_scripts({script}, "3");
}

TEST(Task3, Drawn) { expect_scripts(drawn_scripts(3000 * lab::grading::scenario_seed(), 60), "3"); }

TEST(Task3, Schedules) { expect_schedules("3", 5, 50); }

}  // namespace
}  // namespace lab11::task3
