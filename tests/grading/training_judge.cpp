#include "tests/grading/training_judge.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "common/format.h"

namespace lab::grading {
namespace {

using Microbatch = MicrobatchPart;

// Of the sum of the absolute terms: another order of summation is no mistake.
constexpr double kTolerance = 1e-6;
// Times what the oracle's own gradients are off by, as estimated once.
constexpr double kRoundings = 4;

std::string targets(double count) { return counted(static_cast<int64_t>(count), "target"); }

std::string totals_in_words(const TrainingStep& s) {
  const Numbers totals = s.result.numbers(s.entry("totals"));
  if (totals.empty()) return s.is_last_stage() ? "loss was never called in this step" : "";
  const std::string called =
      fmt::format("loss was called with total_targets = {}; ", fmt::join(totals, ", "));
  if (s.training.ranks() == 1) return called + "this step has " + targets(s.all.targets);
  return called +
         fmt::format("this rank has {}, all ranks have {}", targets(s.own.targets), s.all.targets);
}

std::vector<Mistake> wrong_rates(const TrainingStep& s, const std::string& who) {
  const double rate = s.training.rate(s.step);
  const double ranks = s.training.replicas;
  const std::string what =
      who + "optimizer.step must be given train_step's learning rate as it is: ";
  std::vector<Mistake> all;
  if (ranks > 1)
    all = {
        {{rate * ranks}, what + "it is multiplied by the number of ranks"},
        {{rate * std::sqrt(ranks)}, what + "it is multiplied by the root of the number of ranks"},
        {{rate / ranks}, what + "it is divided by the number of ranks"}};
  if (s.step > 0)
    all.push_back({{s.training.rate(s.step - 1)}, what + "this is the rate of the step before"});
  return all;
}

void expect_one_update(const TrainingStep& s, size_t rank) {
  const double updates = s.result.number(s.entry("updates"));
  if (updates == 0)
    stop(
        fmt::format("{}the weights are not updated: optimizer.step was never called. {} one update "
                    "in every step, {}",
                    s.who(rank), s.training.ranks() == 1 ? "There is" : "Every rank makes",
                    s.step == s.training.nan_loss_step ? "even if the loss is not a number"
                                                       : "even without any target"));
  if (updates > 1)
    stop(
        fmt::format("{}one step of training is one update: optimizer.step was called {} "
                    "times",
                    s.who(rank), updates));
  expect(s.result.number(s.entry("rate")),
         {.what = fmt::format("{}the learning rate that optimizer.step was given, which should be "
                              "train_step's own, unchanged",
                              s.who(rank)),
          .values = {double{s.training.rate(s.step)}},
          .tolerance = {1e-8},
          .mistakes = [&] { return wrong_rates(s, s.who(rank)); }});
  const double counted = s.result.number(s.entry("optimizer_steps"));
  if (counted != static_cast<double>(s.step + 1))
    stop(
        fmt::format("{}optimizer.steps() is {} after step {} of a new optimizer: optimizer.step "
                    "counts the updates; set_steps is for checkpoints only",
                    s.who(rank), counted, s.step + 1));
}

Expected expected_gradients(const TrainingStep& s) {
  const StepParts& p = s.parts();
  const Numbers whole = p.mean();
  Expected expected{
      .what = s.contract.gradients,
      .values = s.part(clipped(whole, s.training.max_norm)),
      .tolerance = s.part(p.magnitude()),
      .name = [&s](size_t i) { return s.oracle.name(i + s.oracle.range(s.stage).first); },
      .mistakes = [&s] { return gradient_mistakes(s); },
      .if_not_finite = std::isinf(overflowed(s.training.leftover))
                           ? s.contract.gradients +
                                 ": not finite: the gradients were infinite before the step, "
                                 "which must set them to 0 first, on every rank (0 times "
                                 "infinity is not 0)"
                           : s.contract.gradients + ": not finite: 0 divided by 0 targets?",
      .slack = [&s] { return kRoundings * s.rounding(s.parts()); }};
  const double largest = largest_magnitude(whole);
  for (double& tolerance : expected.tolerance)
    tolerance = kTolerance * (tolerance + largest) + 1e-30;
  return expected;
}

Expected expected_loss(const TrainingStep& s) {
  const StepParts& p = s.contract.loss == StepContract::Loss::kOwnMean ? s.own : s.all;
  StepParts::Weight right = [&p](const Microbatch&) { return p.targets > 0 ? 1 / p.targets : 0.0; };
  if (s.contract.loss == StepContract::Loss::kPartOnLastStage)
    right = [&s](const Microbatch& b) {
      return b.replica == s.replica && s.all.targets > 0 ? 1 / s.all.targets : 0.0;
    };
  const double value = s.contract.loss != StepContract::Loss::kOwnMean && !s.is_last_stage()
                           ? 0.0
                           : p.combine_losses(right);
  return {
      .what = "the returned loss",
      .values = {value},
      .tolerance = {kTolerance * std::max(std::abs(value), s.training.loss_factor)},
      .mistakes = [&s, &p, right] { return loss_mistakes(s, p, right); },
      .if_not_finite = "the returned loss: not a number; where there is no target the loss is 0"};
}

/// Whether the loss that this rank returns contains one that is NaN.
bool returns_nan(const TrainingStep& s) {
  const bool own = s.training.has_nan_loss(s.step, s.replica);
  switch (s.contract.loss) {
    case StepContract::Loss::kOwnMean:
      return own;
    case StepContract::Loss::kMeanOnLastStage:
      return s.is_last_stage() && s.step == s.training.nan_loss_step;
    case StepContract::Loss::kPartOnLastStage:
      return s.is_last_stage() && own;
  }
  return false;
}

/// The losses that the ranks return; in the place of one that is rightly NaN, what it would be
/// otherwise.
std::vector<Numbers> returned_losses(const std::vector<TrainingStep>& steps,
                                     std::vector<Numbers> losses) {
  for (size_t rank = 0; rank < steps.size(); ++rank) {
    const TrainingStep& s = steps[rank];
    if (!returns_nan(s)) continue;
    if (std::isfinite(losses[rank][0]))
      stop(
          fmt::format("{}the returned loss is {:.4g} in step {}, although `loss` returned NaN: a "
                      "run that has gone wrong must show it",
                      s.who(rank), losses[rank][0], s.step + 1));
    losses[rank] = expected_loss(s).values;
  }
  return losses;
}

void expect_updates_only(const TrainingStep& s, size_t rank) {
  const Numbers updated = to_doubles(s.result.tensor(s.entry("updated")));
  const Numbers weights = to_doubles(s.result.tensor(s.entry("weights")));
  const std::string start = s.step == 0 ? "start" : fmt::format("weights.{}", s.step - 1);
  if (updated != weights && weights == to_doubles(s.result.tensor(start)))
    stop(
        fmt::format("{}optimizer.step changed a copy, but the model still has its old weights: "
                    "pass it parameters() itself",
                    s.who(rank)));
  if (updated != weights)
    stop(
        fmt::format("{}the weights change once more after optimizer.step: a step is one "
                    "update, and nothing else may write to them",
                    s.who(rank)));
}

/// The weights of each replica at the beginning of a step.
std::vector<Numbers> weights_before(const TrainingCase& training, const std::vector<Parcel>& ranks,
                                    size_t step) {
  const std::string entry = step == 0 ? "start" : fmt::format("weights.{}", step - 1);
  std::vector<Numbers> replicas(static_cast<size_t>(training.replicas));
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    const Numbers part = to_doubles(ranks[rank].tensor(entry));
    Numbers& whole = replicas[rank / static_cast<size_t>(training.stages())];
    whole.insert(whole.end(), part.begin(), part.end());
  }
  return replicas;
}

StepParts of_replica(const StepParts& all, size_t replica) {
  StepParts own{.weights = all.weights};
  for (const Microbatch& microbatch : all.microbatches)
    if (microbatch.replica == replica) {
      own.microbatches.push_back(microbatch);
      own.targets += microbatch.targets;
    }
  return own;
}

void expect_loss_calls(const TrainingStep& s, size_t rank) {
  const size_t calls = s.result.numbers(s.entry("totals")).size();
  const size_t microbatches = s.own.microbatches.size();
  if (calls != microbatches)
    stop(fmt::format(
        "{}call the function that is passed in, `loss`, once for each microbatch, even for one "
        "without targets; do not call one of your own\n"
        "in step {}: calls of loss: {}, microbatches: {}",
        s.who(rank), s.step + 1, calls, microbatches));
}

void expect_same_replicas(const TrainingCase& training, const std::vector<Parcel>& ranks,
                          size_t step) {
  const auto stages = static_cast<size_t>(training.stages());
  for (size_t stage = 0; stage < stages; ++stage) {
    std::vector<Numbers> copies;
    for (size_t rank = stage; rank < ranks.size(); rank += stages)
      copies.push_back(to_doubles(ranks[rank].tensor(fmt::format("weights.{}", step))));
    expect_same_bits(copies, fmt::format("after step {} the weights", step + 1));
  }
}

}  // namespace

void judge_steps(const TrainingCase& training, const std::vector<Parcel>& ranks,
                 const StepContract& contract) {
  TrainingOracle oracle(training);
  std::vector<double> earlier_targets;
  std::vector<Numbers> earlier_losses(ranks.size());
  for (size_t step = 0; step < training.steps.size(); ++step) {
    const std::vector<Numbers> weights = weights_before(training, ranks, step);
    const StepParts all = oracle.parts(step, weights);
    std::map<const StepParts*, double> roundings;
    const auto rounding = [&](const StepParts& parts) {
      const auto [known, is_new] = roundings.try_emplace(&parts);
      if (is_new) known->second = oracle.rounding(step, weights, parts);
      return known->second;
    };
    std::vector<StepParts> owns;
    for (size_t r = 0; r < weights.size(); ++r) owns.push_back(of_replica(all, r));
    std::vector<TrainingStep> steps;
    std::vector<Numbers> gradients;
    for (size_t rank = 0; rank < ranks.size(); ++rank) {
      const size_t replica = rank / static_cast<size_t>(training.stages());
      const int stage = static_cast<int>(rank) % training.stages();
      Numbers before;
      if (step == 0 || training.leftover != 0)
        before = Numbers(oracle.of_stage(weights[replica], stage).size(),
                         double{overflowed(training.leftover)});
      else
        before = to_doubles(ranks[rank].tensor(fmt::format("gradients.{}", step - 1)));
      steps.push_back({training, contract, oracle, step, all, owns[replica], replica, stage,
                       ranks[rank], rounding, std::move(before), earlier_targets,
                       earlier_losses[rank]});
      expect_one_update(steps.back(), rank);
      gradients.push_back(to_doubles(ranks[rank].tensor(fmt::format("gradients.{}", step))));
    }
    for (TrainingStep& s : steps)
      for (const TrainingStep& other : steps)
        if (other.replica == s.replica)
          s.before_of_stages.insert(s.before_of_stages.end(), other.before.begin(),
                                    other.before.end());
    const auto in_step = [&](const std::string& text) {
      return fmt::format(
          "{}{}in step {} of {}{}", text, text.empty() ? "" : "\n", step + 1, training.steps.size(),
          training.max_norm > 0
              ? fmt::format(", with a max_gradient_norm of {:.4g}", training.max_norm)
              : "");
    };
    expect_on_every_rank(
        gradients, [&](size_t rank) { return expected_gradients(steps[rank]); },
        [&](size_t rank) { return in_step(totals_in_words(steps[rank])); },
        training.stages() > 1 ? Blame::kLastRank : Blame::kFirstRank);
    const std::vector<Numbers> losses =
        returned_losses(steps, numbers_of(ranks, fmt::format("loss.{}", step)));
    expect_on_every_rank(
        losses, [&](size_t rank) { return expected_loss(steps[rank]); },
        [&](size_t rank) { return in_step(totals_in_words(steps[rank])); });
    if (contract.loss_of_every_microbatch)
      for (size_t rank = 0; rank < ranks.size(); ++rank) expect_loss_calls(steps[rank], rank);
    if (contract.updates_only)
      for (size_t rank = 0; rank < ranks.size(); ++rank) expect_updates_only(steps[rank], rank);
    for (size_t rank = 0; rank < ranks.size(); ++rank)
      if (ranks[rank].number(fmt::format("in_flight.{}", step)) > 0)
        stop(
            fmt::format("{}the stage still holds activations after the step: every forward pass "
                        "needs its backward pass, even for a microbatch without targets",
                        steps[rank].who(rank)));
    if (contract.gradient == StepContract::Gradient::kOfAllReplicas)
      expect_same_replicas(training, ranks, step);
    if (contract.bits_of_one_process && training.replicas == 1 && training.max_norm == 0) {
      const TrainingOracle::Exact exact = oracle.one_process(step, weights[0]);
      Numbers whole;
      for (const Numbers& part : gradients) whole.insert(whole.end(), part.begin(), part.end());
      confirm_bits(whole, exact.gradient, "the gradients");
      if (!contract.loss_in_parts && !returns_nan(steps.back()))
        confirm_bits({ranks.back().number(fmt::format("loss.{}", step))}, {exact.loss}, "the loss");
    }
    earlier_targets.push_back(all.targets);
    for (size_t rank = 0; rank < ranks.size(); ++rank)
      earlier_losses[rank].push_back(losses[rank][0]);
  }
}

void judge_training(
    const CaseLimits& limits, uint64_t seed, const std::string& scenario, const JobOptions& options,
    const std::function<void(const TrainingCase&, const std::vector<Parcel>&)>& judge) {
  judge_cases(draw_cases(limits, 1000 * scenario_seed() + seed), scenario, options, judge);
}

void judge_cases(
    const std::vector<TrainingCase>& cases, const std::string& scenario, const JobOptions& options,
    const std::function<void(const TrainingCase&, const std::vector<Parcel>&)>& judge) {
  std::vector<Call> calls;
  for (const TrainingCase& training : cases) {
    Call call{.scenario = scenario, .inputs = {}, .name = training.name};
    for (int rank = 0; rank < training.ranks(); ++rank) call.inputs.push_back(training.input(rank));
    calls.push_back(call);
  }
  judge_calls(calls, options,
              [&](size_t k, const std::vector<Parcel>& ranks) { judge(cases[k], ranks); });
}

}  // namespace lab::grading
