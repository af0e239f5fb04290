// Task 2: which bucket is posted when, in simulated time; and what travels.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/labs/08_overlap/steps.h"

namespace lab08 {
namespace {

using lab::grading::JobOptions;
using lab::grading::stop;

void judge(const StepsCase& c, const std::vector<Parcel>& ranks) {
  expect_posts(c, ranks);
  expect_means(c, ranks);
}

TEST(Task2, EveryBucketInItsTurn) {
  for (const StepsCase& c : draw_steps(200 + lab::grading::scenario_seed()))
    judge_calls({{.scenario = "steps", .inputs = c.inputs(), .name = c.name}}, c.options({"3"}),
                [&](size_t, const std::vector<Parcel>& ranks) {
                  judge(c, ranks);
                  expect_exposed(c, ranks);
                });
}

TEST(Task2, LateMessagesInAnyOrder) {
  for (const StepsCase& c : draw_steps(210 + lab::grading::scenario_seed()))
    judge_calls({{.scenario = "steps", .inputs = c.inputs(false), .name = c.name}},
                lab::grading::late_messages(21, {"3"}),
                [&](size_t, const std::vector<Parcel>& ranks) { judge(c, ranks); });
}

TEST(Task2, OverGloo) {
  const StepsCase c = draw_steps(220 + lab::grading::scenario_seed())[1];
  JobOptions options;
  options.given = {"3"};
  judge_calls({{.scenario = "steps", .inputs = c.inputs(false), .name = c.name}}, options,
              [&](size_t, const std::vector<Parcel>& ranks) { judge(c, ranks); });
}

TEST(Task2, NothingIsReadyTwice) {
  for (size_t again : {0, 3}) {
    StepsCase c = draw_steps(230 + lab::grading::scenario_seed())[0];
    c.steps.resize(1);
    std::vector<Parcel> inputs = c.inputs();
    for (Parcel& input : inputs) input.set("again", static_cast<double>(again));
    judge_calls({{.scenario = "steps", .inputs = inputs, .name = "ready is called twice"}},
                c.options({"3"}), [&](size_t, const std::vector<Parcel>& ranks) {
                  for (const Parcel& rank : ranks)
                    if (rank.text("again.0").empty())
                      stop(
                          fmt::format("ready accepts a gradient that was ready already in this "
                                      "step: it throws lab::Error\nparameter {}",
                                      again));
                  expect_posts(c, ranks);
                });
  }
}

}  // namespace
}  // namespace lab08
