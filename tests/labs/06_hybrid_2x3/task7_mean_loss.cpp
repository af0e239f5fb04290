// Task 7: the loss for the log.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "tests/labs/06_hybrid_2x3/grid.h"

namespace lab06::task7 {
namespace {

constexpr double kTolerance = 1e-6;  // a loss that travels as a float passes
constexpr uint64_t kMostBytes = 256;

struct Case {
  Grid grid;
  Numbers parts;  // of each pipeline, in the mean loss
};

Expected expected_mean(const Case& c, size_t rank) {
  const double sum = std::accumulate(c.parts.begin(), c.parts.end(), 0.0);
  return {.what = "the mean loss",
          .values = {sum},
          .tolerance = {kTolerance * sum},
          .mistakes = [&c, rank, sum] {
            const Grid& g = c.grid;
            const double own = c.parts[static_cast<size_t>(g.pipeline(rank))];
            std::vector<Mistake> mistakes = {
                {{own},
                 "the part of this pipeline alone: the mean is the sum of the parts of all "
                 "pipelines; which group connects their last stages?"},
                {{sum / g.dp},
                 "divided by the number of pipelines: each part has been divided by all "
                 "targets of the step already, together they are the mean"},
                {{own / g.dp},
                 "the part of this pipeline alone, divided by the number of pipelines: add "
                 "up the parts of all"},
                {{c.parts.back()},
                 "the part of the last pipeline alone: lab::from_last_stage copies, the parts of "
                 "all pipelines must be added up"},
                {{sum * g.pp},
                 "times the number of stages: a part that every stage of a pipeline holds must "
                 "be counted only once"},
                {{sum / (g.dp * g.pp)},
                 "divided by the number of ranks: the parts have been divided by all targets "
                 "already, add them up"},
                {{sum * g.dp}, "times the number of pipelines: added up twice?"},
                {{0.0},
                 "0: only last stages have a part of the loss; the others get it within the "
                 "pipeline (lab::from_last_stage)"}};
            for (Mistake& mistake : mistakes) mistake.message = "the mean loss: " + mistake.message;
            return mistakes;
          }};
}

void judge(const Case& c, const std::vector<Parcel>& ranks) {
  const std::vector<Numbers> got = numbers_of(ranks, "mean");
  if (!std::ranges::all_of(c.parts, [](double part) { return std::isfinite(part); })) {
    for (size_t rank = 0; rank < ranks.size(); ++rank)
      if (std::isfinite(got[rank].at(0)))
        stop(
            fmt::format("{}: the mean loss: {:.3g}, although the part of a pipeline is infinite or "
                        "not a number: the log must show that a run has diverged",
                        c.grid.name(rank), got[rank][0]));
    return;
  }
  lab::grading::expect_on_every_rank(got, [&](size_t rank) { return expected_mean(c, rank); });
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    if (got[rank] != got[0])
      stop(fmt::format(
          "{} has {:.17g}, rank 0 has {:.17g}: all ranks should have the same number, to the last "
          "bit; let one of them add up, or add in the same order everywhere",
          c.grid.name(rank), got[rank][0], got[0][0]));
    uint64_t bytes = 0;
    for (const Operation& operation : operations_of(ranks[rank].part("sent")))
      bytes += operation.bytes;
    if (bytes > kMostBytes)
      stop(fmt::format(
          "{}: the mean loss is right, but {} bytes travel for it: a number or two are enough",
          c.grid.name(rank), bytes));
  }
}

/// One mesh after the other in the same world: numbers that are known, no loss anywhere, and drawn
/// ones, which come out differently in another order of addition.
void expect_mean_losses(const std::vector<Grid>& grids, uint64_t seed, JobOptions options) {
  options.given = {"2"};
  std::mt19937_64 generator(1000 * lab::grading::scenario_seed() + seed);
  const auto draw = [&](int dp) {
    Numbers parts;
    for (int d = 0; d < dp; ++d)
      parts.push_back(std::ldexp(static_cast<double>(generator() >> 11), -51) + 0.01);
    return parts;
  };
  std::vector<Case> cases;
  for (const Grid& g : grids) {
    cases.push_back({g, draw(g.dp)});
    for (int d = 0; d < g.dp; ++d) {  // a pipeline without targets
      cases.push_back({g, draw(g.dp)});
      cases.back().parts[static_cast<size_t>(d)] = 0;
    }
  }
  cases.push_back({grids[0], Numbers(static_cast<size_t>(grids[0].dp), 0.0)});
  for (int i = 0; i < 3; ++i) cases.push_back({grids[0], draw(grids[0].dp)});
  for (const double diverged : {HUGE_VAL, std::nan("")}) {
    cases.push_back({grids[0], draw(grids[0].dp)});
    cases.back().parts.back() = diverged;
  }
  std::vector<Call> calls;
  for (const Case& c : cases) {
    Call call{.scenario = "mean_loss",
              .inputs = std::vector<Parcel>(c.grid.ranks()),
              .name = fmt::format("{}, parts {:.3g}", c.grid.in_words(), fmt::join(c.parts, ", "))};
    for (size_t r = 0; r < c.grid.ranks(); ++r) {
      c.grid.set(call.inputs[r]);
      call.inputs[r].set(
          "loss", c.grid.is_last(r) ? c.parts[static_cast<size_t>(c.grid.pipeline(r))] : 0.0);
    }
    calls.push_back(call);
  }
  judge_calls(calls, options,
              [&](size_t k, const std::vector<Parcel>& ranks) { judge(cases[k], ranks); });
}

TEST(Task7, SixRanks) {
  expect_mean_losses({{2, 3}, {3, 2}, {1, 6}, {6, 1}}, 71, late_messages(71));
}
TEST(Task7, EightRanks) { expect_mean_losses({{4, 2}, {2, 4}}, 72, late_messages(72)); }
TEST(Task7, FourRanks) { expect_mean_losses({{4, 1}, {1, 4}, {2, 2}}, 73, late_messages(73)); }
TEST(Task7, ASingleRank) { expect_mean_losses({{1, 1}}, 74, late_messages(74)); }
TEST(Task7, OverGloo) { expect_mean_losses({{3, 2}}, 75, {}); }

}  // namespace
}  // namespace lab06::task7
