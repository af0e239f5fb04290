// Gradients and losses of a step, and what mistakes make of them.
#include "tests/labs/06_hybrid_2x3/verdict_gradients.h"

#include <fmt/format.h>

#include <cmath>

#include "tests/labs/pipeline/same_bits.h"

namespace lab06 {

using lab::grading::Expected;
using lab::grading::Parcel;

namespace {

/// A way to weigh the microbatches, relative to the right one.
struct Weighing {
  Parts::Factor factor;
  std::string message;
};

constexpr const char* kAllTargets =
    "all targets of the step count the same, wherever they are; hand the result of total_targets "
    "to "
    "run_actions";

/// They refer to both arguments.
std::vector<Weighing> wrong_weighings(const StepCase& c, const Parts& p) {
  const auto dp = static_cast<double>(c.grid.dp);
  const auto m = static_cast<double>(c.wave);
  const auto waves = static_cast<double>(c.waves);
  const auto all = static_cast<double>(c.microbatches());
  const auto wave = [&c](size_t k) { return static_cast<int>(k) / c.wave; };
  const auto wave_targets = [&p, wave](size_t d, size_t k, bool everywhere) {
    double sum = 0;
    for (size_t e = 0; e < p.targets.size(); ++e)
      for (size_t j = 0; j < p.targets[e].size(); ++j)
        if (wave(j) == wave(k) && (everywhere || e == d)) sum += p.targets[e][j];
    return sum;
  };
  std::vector<Weighing> weighings;
  if (c.grid.dp > 1)
    weighings = {
        {[&p](size_t d, size_t) { return p.total / p.targets_of(d); },
         fmt::format("every pipeline divides by its own targets, and the means are added up: {}",
                     kAllTargets)},
        {[=, &p](size_t d, size_t) { return p.total / p.targets_of(d) / dp; },
         fmt::format("a mean of the pipelines' means: {}", kAllTargets)},
        {[=](size_t, size_t) { return 1 / dp; },
         "divided by the number of pipelines, although loss has divided by all targets already: "
         "averaged twice"},
    };
  if (c.waves > 1) {
    const int last = c.waves - 1;
    const std::vector<Weighing> of_waves = {
        {[=](size_t, size_t k) { return wave(k) == last ? 1.0 : 0.0; },
         "only the last wave arrived: zero the gradients once, before the first wave, and add up "
         "the losses of all"},
        {[=](size_t, size_t k) { return wave(k) == 0 ? 1.0 : 0.0; },
         "only the first wave arrived: run the schedule once per wave, on the next microbatches"},
        {[=](size_t, size_t k) { return wave(k) == 0 ? waves : 0.0; },
         "every wave ran on the first wave's microbatches: the next wave takes the next ones"},
        {[=, &p](size_t d, size_t k) { return p.total / wave_targets(d, k, true); },
         "every wave is divided by its own targets: count those of all waves"},
        {[=, &p](size_t d, size_t k) { return p.total / wave_targets(d, k, false); },
         "every wave of every pipeline is divided by its own targets: count those of the whole "
         "step"},
        {[=](size_t, size_t) { return 1 / waves; },
         "divided by the number of waves on top of the number of targets: averaged twice"},
    };
    weighings.insert(weighings.end(), of_waves.begin(), of_waves.end());
  }
  const std::vector<Weighing> others = {
      {[=](size_t, size_t) { return 1 / m; },
       "divided by the number of microbatches on top of the number of targets: averaged twice"},
      {[=](size_t, size_t) { return 1 / all; },
       "divided by the number of microbatches on top of the number of targets: averaged twice"},
      {[=](size_t, size_t) { return 1 / all / dp; },
       "divided by the number of all pipelines' microbatches on top of the number of targets: "
       "averaged twice"},
      {[&p](size_t, size_t) { return p.total; },
       "a sum over all targets, not a mean: hand the number of targets to run_actions"},
      {[&p](size_t d, size_t k) { return p.total / p.targets[d][k]; },
       "the microbatches' means are added up: divide by the targets of the whole step"},
      {[=](size_t, size_t) { return dp; },
       "as many times too large as there are pipelines: are the gradients added up twice?"},
  };
  weighings.insert(weighings.end(), others.begin(), others.end());
  return weighings;
}

std::vector<MeshMistake> gradient_mistakes(const StepCase& c, const Parts& p) {
  const auto dp = static_cast<size_t>(c.grid.dp);
  std::vector<MeshMistake> mistakes;
  // Each pipeline with those of its own microbatches only; with a sum over all of them.
  const auto add = [&](const Parts::Factor& factor, const std::string& message) {
    MeshMistake mistake{.by_pipeline = {}, .message = "the gradients: " + message};
    for (size_t d = 0; d < dp; ++d)
      mistake.by_pipeline.push_back(
          p.combine([&](size_t e, size_t k) { return e == d ? factor(e, k) : 0.0; }));
    mistakes.push_back(mistake);
  };
  const auto add_sum = [&](const Numbers& sum, const std::string& message) {
    mistakes.push_back({std::vector<Numbers>(dp, sum), "the gradients: " + message});
  };
  if (dp > 1) {
    const std::string alone =
        "those of this pipeline alone: nothing of the other pipelines was added. The replicas of a "
        "stage add up their gradients when all microbatches are done (all_reduce, in "
        "mesh.replicas)";
    add([](size_t, size_t) { return 1.0; }, alone);
    add([&p](size_t d, size_t) { return p.total / p.targets_of(d); }, alone);
    add_sum(
        p.combine([](size_t d, size_t) { return d == 0 ? 1.0 : 0.0; }),
        "all ranks have those of pipeline 0: a broadcast copies, the gradients of all pipelines "
        "are to be added up (all_reduce)");
    MeshMistake reduced{.by_pipeline = {p.sum}, .message = "the gradients: "};
    for (size_t d = 1; d < dp; ++d)
      reduced.by_pipeline.push_back(
          p.combine([&](size_t e, size_t) { return e == d ? 1.0 : 0.0; }));
    reduced.message +=
        "only pipeline 0 has the sum: every replica needs it (all_reduce, not reduce)";
    mistakes.push_back(reduced);
  }
  if (c.waves > 1 && dp > 1)
    add_sum(
        p.combine([&](size_t, size_t k) {
          return std::pow(c.grid.dp, c.waves - 1 - static_cast<int>(k) / c.wave);
        }),
        "an all_reduce after every wave adds up what has been added up before: once, behind the "
        "last wave");
  for (const Weighing& weighing : wrong_weighings(c, p))
    add_sum(p.combine(weighing.factor), weighing.message);
  if (c.leftover != 0)
    for (const double times : {1.0, static_cast<double>(dp)}) {
      Numbers sum = p.sum;
      for (double& g : sum) g += times * c.leftover;
      add_sum(sum,
              "those from before the step are still in them: call stage.zero_gradients() "
              "first, on every rank");
    }
  return mistakes;
}

std::string calls_in_words(const std::vector<Parcel>& results, const StepCase& c, const Parts& p) {
  std::string text;
  for (int d = 0; d < c.grid.dp; ++d) {
    const Parcel& last = results[c.grid.rank(d, c.grid.pp - 1)];
    text += fmt::format("\npipeline {}: loss was called with {} targets", d,
                        list(last.numbers("totals")));
  }
  return text + fmt::format("; the step has {} targets", p.total);
}

Expected expected_loss(const StepCase& c, const Parts& p, int pipeline) {
  const auto own = static_cast<size_t>(pipeline);
  const auto here = [own](size_t d) { return d == own ? 1.0 : 0.0; };
  const double right = p.combine_losses([&](size_t d, size_t) { return here(d); });
  Expected expected{.what = "the returned loss",
                    .values = {right},
                    .tolerance = {1e-6 * right},
                    .name = {},
                    .mistakes = {},
                    .if_not_finite = ""};
  const auto add = [&](double value, const std::string& message) {
    expected.mistakes.push_back({{value}, "the returned loss: " + message});
  };
  const double sum = p.combine_losses([](size_t, size_t) { return 1.0; });
  add(sum,
      "that of all pipelines: a last stage returns the part of its own pipeline, and "
      "mean_loss adds the parts up when there is a line for the log to write");
  add(sum / c.grid.dp, "the mean over the pipelines: a last stage returns the part of its own");
  add(right * p.total / p.targets_of(own),
      "the mean over this pipeline's own targets: it is its part of the mean over all");
  add(0, "0: a last stage returns what run_actions has returned, added up over the waves");
  for (const Weighing& weighing : wrong_weighings(c, p))
    add(p.combine_losses([&](size_t d, size_t k) { return here(d) * weighing.factor(d, k); }),
        weighing.message);
  return expected;
}

}  // namespace

void expect_gradients(const std::vector<Parcel>& results, const StepCase& c, const Parts& p) {
  const Expected whole{.what = "the gradients",
                       .values = p.sum,
                       .tolerance = p.tolerance(),
                       .name = {},
                       .mistakes = {},
                       .if_not_finite = ""};
  expect_on_all_ranks(
      results, "gradients", c.grid, p, whole, [&] { return gradient_mistakes(c, p); },
      [&] { return calls_in_words(results, c, p); });
  expect_equal_replicas(results, "gradients", c.grid, "the gradients");
  if (c.grid.dp > 2) return;  // an all_reduce may add in any order
  pipeline_tests::confirm_bits(
      pipeline_tests::joined(pipeline_tests::tensors_of(results, "gradients")),
      for_all_ranks(p.sum, c.grid), "the gradients");
}

void expect_losses(const std::vector<Parcel>& results, const StepCase& c, const Parts& p) {
  for (size_t rank = 0; rank < results.size(); ++rank) {
    const double loss = results[rank].number("loss");
    if (!c.grid.is_last(rank) && loss != 0)
      lab::grading::stop(
          fmt::format("{} returns a loss of {:.7g}: only last stages know one, the others return 0",
                      c.grid.name(rank), loss));
    if (!c.grid.is_last(rank)) continue;
    const std::string wrong =
        lab::grading::difference({loss}, expected_loss(c, p, c.grid.pipeline(rank)));
    if (!wrong.empty())
      lab::grading::stop(
          fmt::format("{}: {}{}", c.grid.name(rank), wrong, calls_in_words(results, c, p)));
    if (c.waves > 1) continue;  // each wave has a sum of its own: another order of addition
    pipeline_tests::confirm_bits({loss},
                                 {p.sums_of_losses[static_cast<size_t>(c.grid.pipeline(rank))]},
                                 "the returned loss");
  }
}

}  // namespace lab06
