// Judging updates, losses, weights and traffic of train_step.
#include "tests/labs/02_gradient_allreduce/verdict_step_judges.h"

#include <fmt/format.h>

#include <cmath>

namespace lab02 {

using lab::grading::Expected;
using lab::grading::Parcel;
using Microbatch = StepParts::Microbatch;

void expect_one_update(const std::vector<Parcel>& results, const StepCase& c) {
  for (size_t rank = 0; rank < results.size(); ++rank)
    for (int step = 0; step < c.steps; ++step) {
      const double updates = results[rank].number("updates" + std::to_string(step));
      if (updates == 0)
        lab::grading::stop(fmt::format(
            "rank {}: the weights are not updated: optimizer.step was never called. Every rank "
            "updates its own replica",
            rank));
      if (updates > 1)
        lab::grading::stop(fmt::format(
            "rank {}: one step of training is one update: optimizer.step was called {} times", rank,
            updates));
      lab::grading::expect(results[rank].number("rate" + std::to_string(step)),
                           {.what = "the learning rate that optimizer.step was given",
                            .values = {c.learning_rate},
                            .tolerance = {1e-8},
                            .name = {},
                            .mistakes = {},
                            .if_not_finite = ""});
    }
}

void expect_own_losses(const std::vector<Parcel>& results, const StepParts& p) {
  const auto expected_loss = [&](size_t rank) {
    const auto own = [&](const Microbatch& b) {
      return b.rank == rank && p.targets[rank] > 0 ? 1 / p.targets[rank] : 0.0;
    };
    const double right = p.combine_losses(own);
    Expected expected{.what = "the returned loss",
                      .values = {right},
                      .tolerance = {kTolerance * (right != 0 ? std::abs(right) : 1.0)},
                      .name = {},
                      .mistakes = {},
                      .if_not_finite =
                          "the returned loss: not a number; a rank without targets "
                          "has a loss of 0"};
    const auto add = [&](const StepParts::Factor& factor, const std::string& message) {
      expected.mistakes.push_back({{p.combine_losses(factor)}, "the returned loss: " + message});
    };
    add([&](const Microbatch&) { return 1 / p.total; },
        "the mean over all ranks; train_step returns this rank's own mean, and average_loss makes "
        "one of them where the log wants it");
    add([&](const Microbatch& b) { return b.rank == rank ? 1 / p.total : 0.0; },
        "this rank's sum divided by the targets of all ranks; divide by its own");
    add([&](const Microbatch& b) { return b.rank == rank && b.targets > 0 ? 1 / b.targets : 0.0; },
        "the means of the microbatches are added up: divide each one's sum by all targets of this "
        "rank");
    add(
        [&](const Microbatch& b) {
          return b.rank == rank && b.number == 0 && b.targets > 0 ? 1 / b.targets : 0.0;
        },
        "that of the first microbatch only");
    add(
        [&](const Microbatch& b) {
          return b.rank == rank && static_cast<double>(b.number + 1) == p.counts[rank] ? own(b)
                                                                                       : 0.0;
        },
        "that of the last microbatch only");
    return expected;
  };
  expect_on_every_rank(numbers_of(results, "loss0"), expected_loss);
}

void expect_replicas(const std::vector<Parcel>& results, const StepCase& c) {
  for (int step = 0; step < c.steps; ++step) {
    const std::string suffix = std::to_string(step);
    const std::string when = fmt::format("after step {} the ", step + 1);
    expect_same_bits(tensors_of(results, "weights" + suffix), when + "weights");
    for (const std::string state : {"exp_avg", "exp_avg_sq"})
      if (results[0].has(state + suffix))
        expect_same_bits(tensors_of(results, state + suffix),
                         when + "state of Adam (" + state + ")");
  }
}

void expect_displacement(const std::vector<Parcel>& results, const Parcel& right,
                         const StepParts& p, const StepCase& c) {
  const auto moved = [&](Numbers weights) {
    for (size_t i = 0; i < weights.size(); ++i) weights[i] -= p.weights[i];
    return weights;
  };
  for (int step = 0; step < c.steps; ++step) {
    const std::string entry = "weights" + std::to_string(step);
    std::vector<Numbers> got;
    for (const Numbers& weights : tensors_of(results, entry)) got.push_back(moved(weights));
    Expected expected{.what = fmt::format("the change of the weights after step {}", step + 1),
                      .values = moved(lab::grading::to_doubles(right.tensor(entry))),
                      .tolerance = p.weights,
                      .name = [&p](size_t i) { return p.name(i); },
                      .mistakes = {},
                      .if_not_finite = ""};
    // The weight itself is rounded at every update; differences grow from step to step.
    const double allowed = 1e-4 * lab::grading::largest_magnitude(expected.values);
    for (double& tolerance : expected.tolerance)
      tolerance = 2e-7 * std::abs(tolerance) * (step + 1) + allowed;
    expect_on_every_rank(got, [&](size_t) { return expected; });
  }
}

void expect_step_traffic(const std::vector<Parcel>& results, const StepParts& p,
                         const StepCase& c) {
  const auto steps = static_cast<uint64_t>(c.steps);
  const auto numbers = static_cast<uint64_t>(p.weights.size()) + 1;  // as the flat buffer holds
  expect_traffic(
      results,
      {.all_reduces = 2 * steps,
       .bytes = numbers * sizeof(float) * steps,
       .if_too_many = "the weights are right, but a step takes more than two all_reduces: pass "
                      "model.gradients() to average_gradients as one tensor; neither weights nor "
                      "the state of the optimizer need a message",
       .if_too_large = "the weights are right, but more travels than the gradients and the number "
                       "of targets"});
  // What a student's code cannot fake: the gradients did travel.
  const auto least = static_cast<uint64_t>(p.parameters) * sizeof(float) * steps;
  for (size_t rank = 0; rank < results.size(); ++rank)
    if (lab::grading::traffic_of(results[rank], lab::OpKind::kAllReduce).bytes < least)
      lab::grading::stop(fmt::format(
          "rank {} has sent fewer bytes than it has gradients: every rank gives its own in every "
          "step",
          rank));
}

}  // namespace lab02
