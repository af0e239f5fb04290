// Task 3: means over all targets, after as much waiting as the network needs; and gradients that
// never become ready.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <regex>

#include "tests/labs/08_overlap/steps.h"

namespace lab08::task3 {
namespace {

using lab::grading::scenario_seed;
using lab::grading::stop;

/// `silent`: these gradients never become ready. On the last rank, there may be no targets.
void expect_refusal(const std::vector<size_t>& silent, bool has_targets = true) {
  StepsCase c = draw_steps(330 + scenario_seed())[0];
  c.name = "a gradient is never ready";
  c.steps.resize(1);
  if (!has_targets) c.steps[0].targets.back() = 0;
  for (auto& order : c.steps[0].orders)
    std::erase_if(order, [&](size_t p) { return std::ranges::count(silent, p) > 0; });
  expect_steps({c}, Wires::kCosts, "2", [&](const StepsCase&, const std::vector<Parcel>& ranks) {
    for (size_t r = 0; r < ranks.size(); ++r) {
      const std::string error = ranks[r].text("error.0");
      if (error.empty())
        stop(
            fmt::format("finish returns although the gradient of parameter {} was never ready; it "
                        "must throw lab::Error",
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

// Comes first: a solution without this check may crash in the other tests, which cannot say why.
TEST(Task3, AGradientThatIsNeverReady) {
  expect_refusal({2});
  expect_refusal({0});
  expect_refusal({5});
  expect_refusal({2}, /*has_targets=*/false);
  expect_refusal({0, 1, 2, 3, 4, 5});  // finish without ready
}

TEST(Task3, MeansOverAllTargets) {
  expect_steps(draw_steps(300 + scenario_seed()), Wires::kCosts, "2");
}

// Results arrive late: a rank that does not wait reads sums that are not there yet.
TEST(Task3, LateMessagesInAnyOrder) {
  expect_steps(draw_steps(310 + scenario_seed()), Wires::kLate, "2");
}

TEST(Task3, OverGloo) { expect_steps({draw_steps(320 + scenario_seed())[1]}, Wires::kGloo, "2"); }

}  // namespace
}  // namespace lab08::task3
