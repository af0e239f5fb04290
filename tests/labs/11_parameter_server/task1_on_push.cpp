// Task 1: every gradient counts once, with its samples, and n of them make an update.
#include <gtest/gtest.h>

#include "tests/grading/verdict.h"
#include "tests/labs/11_parameter_server/scripts.h"

namespace lab11::task1 {
namespace {

using entries::kLeave;
using entries::kPull;
using entries::kPush;

TEST(Task1, ByHand) {
  expect_scripts(
      {{.name = "two workers, equal samples",
        .n = 2,
        .steps = {{kPull, 0},
                  {kPull, 1},
                  {kPush, 0, 4},
                  {kPush, 1, 4},
                  {kPull, 0},
                  {kPull, 1},
                  {kPush, 2, 4},
                  {kPush, 3, 4}}},
       {.name = "unequal samples",
        .n = 2,
        .steps = {{kPull, 0},
                  {kPull, 1},
                  {kPush, 1, 1},
                  {kPush, 0, 3},
                  {kPull, 0},
                  {kPull, 1},
                  {kPush, 2, 2},
                  {kPush, 3, 5}}},
       {.name = "one gradient per update",
        .n = 1,
        .s = 5,
        .steps = {{kPull, 0}, {kPull, 1}, {kPush, 1, 1}, {kPull, 1}, {kPush, 2, 2}, {kPush, 0, 3}}},
       {.name = "no samples at all",
        .n = 2,
        .steps = {{kPull, 0},
                  {kPull, 1},
                  {kPush, 0, 0},
                  {kPush, 1, 0},
                  {kPull, 0},
                  {kPull, 1},
                  {kPush, 2, 0},
                  {kPush, 3, 2}}}},
      "1");
}

TEST(Task1, AgainAndTooLate) {
  expect_scripts({{.name = "a push that is sent again",
                   .n = 3,
                   .steps = {{kPull, 0},
                             {kPull, 1},
                             {kPush, 0, 2},
                             {kPush, 0, 2},
                             {kPush, 1, 1},
                             {kPull, 2},
                             {kPush, 1, 1},
                             {kPush, 2, 4},
                             {kPush, 2, 4}}},
                  {.name = "a ticket that was taken back, and whose item somebody else has",
                   .n = 2,
                   .steps = {{kPull, 0},
                             {kPull, 1},
                             {kLeave, 0},
                             {kPull, 2},
                             {kPush, 0, 2},
                             {kPush, 1, 1},
                             {kPush, 2, 3},
                             {kPush, 0, 2}}},
                  {.name = "a ticket that nobody has been given",
                   .n = 1,
                   .steps = {{kPush, 7, 2}, {kPull, 0}, {kPush, 1, 2}, {kPush, 0, 2}}}},
                 "1");
}

TEST(Task1, ManyGradientsPerUpdate) {
  expect_scripts({{.name = "from gradient 126 of 130 on",
                   .n = 130,
                   .s = 1,
                   .items = 260,
                   .steps = {{kPush, 126, 2}, {kPush, 129, 1}, {kPush, 127, 1}, {kPush, 128, 3}},
                   .start = {.gradients = 126,
                             .samples = 126,
                             .next_item = 130,
                             .next_ticket = 130,
                             .leases = {{126, {0, 126, 0}},
                                        {127, {1, 127, 0}},
                                        {128, {2, 128, 0}},
                                        {129, {3, 129, 0}}}}}},
                 "1");
}

TEST(Task1, AGradientThatIsInfinite) {
  expect_scripts({{.name = "and the next update without it",
                   .n = 2,
                   .steps = {{kPull, 0},
                             {kPull, 1},
                             {kPush, 0, 2},
                             {kPush, 1, 2},
                             {kPull, 0},
                             {kPull, 1},
                             {kPush, 2, 3},
                             {kPush, 3, 1}},
                   .diverged = 1}},
                 "1");
}

TEST(Task1, Drawn) { expect_scripts(drawn_scripts(1000 * lab::grading::scenario_seed(), 60), "1"); }

TEST(Task1, Schedules) { expect_schedules("1", 5, 50); }

}  // namespace
}  // namespace lab11::task1
