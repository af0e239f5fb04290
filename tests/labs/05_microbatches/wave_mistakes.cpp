// What well-known mistakes make of the gradients and losses of a wave, and of a step of several.
#include <algorithm>
#include <cmath>
#include <string>
#include <tuple>
#include <vector>

#include "tests/labs/05_microbatches/mix_ups.h"
#include "tests/labs/05_microbatches/waves.h"

namespace lab05 {

using lab::grading::MicrobatchPart;
using lab::grading::Mistake;
using lab::grading::Numbers;
using lab::grading::Weighing;

namespace {

/// Weights of microbatches that are wrong, and why.
std::vector<Weighing> wrong_weighings(const WaveRun& run) {
  const auto m = static_cast<double>(run.parts.microbatches.size());
  const double share = run.share();
  const double own = run.parts.targets;
  const auto of_itself = [](const MicrobatchPart& b) {
    return b.targets > 0 ? 1 / b.targets : 0.0;
  };
  return {
      {"divided by the targets of this wave: call loss with the total_targets that run_actions is "
       "given, those of all waves of the step",
       [=](const MicrobatchPart&) { return own > 0 ? 1 / own : 0.0; }},
      {"total_targets was raised to the microbatch's own number of targets: call loss with the "
       "total_targets that run_actions is given, whatever it is",
       [=, total = run.wave.total](const MicrobatchPart& b) {
         return 1 / std::max({total, b.targets, 1.0});
       }},
      {"every microbatch is divided by its own targets, and the means are added up: call loss with "
       "the total_targets that run_actions is given",
       of_itself},
      {"a mean of means: call loss with the total_targets that run_actions is given",
       [=](const MicrobatchPart& b) { return of_itself(b) / m; }},
      {"a sum over the targets, not a mean: call loss with the total_targets that run_actions is "
       "given",
       [](const MicrobatchPart&) { return 1.0; }},
      {"divided by the number of microbatches, although loss has divided by all targets already: "
       "averaged twice",
       [=](const MicrobatchPart&) { return share / m; }},
      {"only the last microbatch arrived: is something zeroed or overwritten?",
       [=](const MicrobatchPart& b) { return static_cast<double>(b.number) + 1 == m ? share : 0; }},
      {"only the first microbatch arrived",
       [=](const MicrobatchPart& b) { return b.number == 0 ? share : 0.0; }},
  };
}

/// The stages in [first, last] divide what they pass back by m once more, `before` their own
/// backward or after it.
Numbers divided_on_the_way(const WaveRun& run, int first, int last, bool before) {
  const auto m = static_cast<double>(run.parts.microbatches.size());
  Numbers values = run.parts.combine([&](const MicrobatchPart&) { return run.share(); });
  for (int s = 0; s < run.wave.stages(); ++s) {
    const int nearest = std::max(first, before ? s : s + 1);
    const double factor = std::pow(1 / m, std::max(0, last - nearest + 1));
    const auto [begin, end] = run.oracle.range(s);
    for (size_t i = begin; i < end; ++i) values[i] *= factor;
  }
  return values;
}

std::vector<Hypothesis> hypotheses(const WaveRun& run) {
  const Numbers right = run.parts.combine([&](const MicrobatchPart&) { return run.share(); });
  std::vector<Hypothesis> all;
  Numbers without = right;
  for (double& g : without) g -= double{run.wave.training.leftover};
  all.push_back(
      {"the gradients that were there before are gone: run_actions adds to them, since a "
       "step may have several waves",
       without});
  const std::string what = "the gradients: ";
  for (const Weighing& weighing : wrong_weighings(run))
    all.push_back({what + weighing.message, run.parts.combine(weighing.weight)});
  const int last = run.wave.stages() - 1;
  for (const auto& [from, to, before] :
       {std::tuple(0, last, false), std::tuple(0, last, true), std::tuple(1, last - 1, false),
        std::tuple(1, last - 1, true), std::tuple(0, last - 1, true)})
    all.push_back({what + "every stage divides what it passes on by the number of microbatches: "
                          "the loss has done that for all of them",
                   divided_on_the_way(run, from, to, before)});
  for (const Hypothesis& mixed : mixed_up(run.wave))
    all.push_back({what + mixed.message, mixed.gradient});
  return all;
}

Numbers part_of(const WaveRun& run, const Hypothesis& hypothesis, int stage) {
  return run.with_leftover(run.oracle.of_stage(hypothesis.gradient, stage));
}

/// Whether it gives just what all stages got. On a single one, one mistake may look like another.
bool explains_all_stages(const WaveRun& run, const Hypothesis& hypothesis) {
  for (int s = 0; s < run.wave.stages(); ++s) {
    const Numbers values = part_of(run, hypothesis, s);
    const double largest = lab::grading::largest_magnitude(values);
    const Numbers got =
        lab::grading::to_doubles(run.stages[static_cast<size_t>(s)].tensor("gradients"));
    if (!lab::grading::difference(
             got, {.what = "",
                   .values = values,
                   .tolerance = lab::grading::relative_tolerance(values, 1e-4, 0.01 * largest)})
             .empty())
      return false;
  }
  return true;
}

}  // namespace

std::vector<Mistake> gradient_mistakes(const WaveRun& run, int stage) {
  std::vector<Hypothesis> all = hypotheses(run);
  std::vector<Hypothesis> likely = all;
  std::erase_if(likely, [&](const Hypothesis& each) { return !explains_all_stages(run, each); });
  std::vector<Mistake> mistakes;
  for (const Hypothesis& each : likely.empty() ? all : likely)
    mistakes.push_back({part_of(run, each, stage), each.message});
  return mistakes;
}

std::vector<Mistake> loss_mistakes(const WaveRun& run) {
  std::vector<Mistake> mistakes;
  for (const Weighing& weighing : wrong_weighings(run))
    mistakes.push_back(
        {{run.parts.combine_losses(weighing.weight)}, "the returned loss: " + weighing.message});
  return mistakes;
}

std::vector<Weighing> wave_weighings(size_t m, const lab::grading::StepParts& step) {
  std::vector<double> targets(step.microbatches.size() / m, 0.0);  // of each wave
  for (const MicrobatchPart& b : step.microbatches) targets[b.number / m] += b.targets;
  const auto waves = static_cast<double>(targets.size());
  const double total = step.targets;
  double rows = 0;
  for (const MicrobatchPart& b : step.microbatches) rows += b.sequences;
  const std::vector<Weighing> always = {
      {"all tokens but one per row are counted as targets: the last stage need not have the first "
       "token of a row, and a row may be empty; TokenBatch::target_count() counts right",
       [=](const MicrobatchPart&) { return 1 / (total - rows); }}};
  if (targets.size() < 2) return always;
  const size_t last = targets.size() - 1;
  const auto of_wave = [=](const MicrobatchPart& b) {
    return targets[b.number / m] > 0 ? 1 / targets[b.number / m] : 0.0;
  };
  const auto only = [=](size_t wave, double weight) {
    return [=](const MicrobatchPart& b) { return b.number / m == wave ? weight : 0.0; };
  };
  const std::string zero =
      ": zero the gradients once, before the first wave, and add up the losses of all";
  const std::string next = ": run the schedule once per wave, on the next microbatches";
  std::vector<Weighing> weighings = {
      {"only the last wave arrived" + zero, only(last, 1 / total)},
      {"only the last wave arrived, as if it were the whole step" + zero,
       only(last, targets[last] > 0 ? 1 / targets[last] : 0)},
      {"only the first wave arrived" + next, only(0, 1 / total)},
      {"only the first wave arrived, as if it were the whole step" + next,
       only(0, targets[0] > 0 ? 1 / targets[0] : 0)},
      {"every wave is divided by its own targets, and the means are added up: divide by the "
       "targets of all waves, so that each of them counts the same",
       of_wave},
      {"a mean of the waves' means: divide by the targets of all waves, so that each of them "
       "counts the same",
       [=](const MicrobatchPart& b) { return of_wave(b) / waves; }},
      {"every wave is counted as if it had as many targets as the first: count those of all",
       [=](const MicrobatchPart&) { return targets[0] > 0 ? 1 / targets[0] / waves : 0.0; }},
      {"divided by the number of waves on top of the number of targets: averaged twice",
       [=](const MicrobatchPart&) { return 1 / total / waves; }},
      {"divided by the schedule's number of microbatches on top of the number of targets: averaged "
       "twice",
       [=](const MicrobatchPart&) { return 1 / total / static_cast<double>(m); }},
  };
  weighings.push_back(always[0]);
  return weighings;
}

}  // namespace lab05
