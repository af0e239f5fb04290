// Task 3: means over all targets, after as much waiting as the network needs; and gradients that
// never become ready.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <regex>

#include "tests/labs/08_overlap/steps.h"

namespace lab08 {
namespace {

using lab::grading::JobOptions;
using lab::grading::stop;

void judge(const StepsCase& c, const std::vector<Parcel>& ranks) {
  expect_means(c, ranks);
  expect_posts(c, ranks);
}

TEST(Task3, MeansOverAllTargets) {
  for (const StepsCase& c : draw_steps(300 + lab::grading::scenario_seed()))
    judge_calls({{.scenario = "steps", .inputs = c.inputs(), .name = c.name}}, c.options({"2"}),
                [&](size_t, const std::vector<Parcel>& ranks) {
                  judge(c, ranks);
                  expect_exposed(c, ranks);
                });
}

// Results arrive late: a rank that does not wait reads sums that are not there yet.
TEST(Task3, LateMessagesInAnyOrder) {
  for (const StepsCase& c : draw_steps(310 + lab::grading::scenario_seed()))
    judge_calls({{.scenario = "steps", .inputs = c.inputs(false), .name = c.name}},
                lab::grading::late_messages(31, {"2"}),
                [&](size_t, const std::vector<Parcel>& ranks) { judge(c, ranks); });
}

TEST(Task3, OverGloo) {
  const StepsCase c = draw_steps(320 + lab::grading::scenario_seed())[1];
  JobOptions options;
  options.given = {"2"};
  judge_calls({{.scenario = "steps", .inputs = c.inputs(false), .name = c.name}}, options,
              [&](size_t, const std::vector<Parcel>& ranks) { judge(c, ranks); });
}

/// `silent`: these gradients never become ready.
void expect_refusal(const std::vector<size_t>& silent) {
  StepsCase c = draw_steps(330 + lab::grading::scenario_seed())[0];
  c.steps.resize(1);
  for (auto& order : c.steps[0].orders)
    std::erase_if(order, [&](size_t p) { return std::ranges::count(silent, p) > 0; });
  judge_calls({{.scenario = "steps", .inputs = c.inputs(), .name = "a gradient is never ready"}},
              c.options({"2"}), [&](size_t, const std::vector<Parcel>& ranks) {
                for (size_t r = 0; r < ranks.size(); ++r) {
                  const std::string error = ranks[r].text("error.0");
                  if (error.empty())
                    stop(
                        fmt::format("finish returns although the gradient of parameter {} was "
                                    "never ready: it throws lab::Error",
                                    silent[0]));
                  const bool names = std::ranges::any_of(silent, [&](size_t p) {
                    return std::regex_search(error, std::regex(fmt::format("\\b{}\\b", p)));
                  });
                  if (!names)
                    stop(
                        fmt::format("finish does not name the parameter whose gradient was never "
                                    "ready\nparameter {}; rank {} says: {}",
                                    silent[0], r, error));
                  if (ranks[r].numbers("finished.0")[0] > ranks[r].numbers("ready.0").back())
                    stop(
                        fmt::format("finish waits for messages before it notices that a gradient "
                                    "was never ready\nrank {}",
                                    r));
                }
              });
}

TEST(Task3, AGradientThatIsNeverReady) {
  expect_refusal({2});
  expect_refusal({0});
  expect_refusal({5});
  expect_refusal({0, 1, 2, 3, 4, 5});  // finish without ready
}

}  // namespace
}  // namespace lab08
