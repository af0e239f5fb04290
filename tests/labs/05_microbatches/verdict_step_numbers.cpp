// What the optimizers should get, what train_step should return, and what mistakes make of them.
#include <fmt/format.h>

#include <cmath>

#include "tests/labs/05_microbatches/verdict_step.h"

namespace lab05 {

using lab::grading::Expected;
using lab::grading::Mistake;
using lab::grading::Parcel;

namespace {

/// A way to weigh the microbatches, relative to the right one.
struct Weighing {
  Parts::Factor factor;
  std::string message;
};

/// Numbers about the waves of a step.
struct Waves {
  Waves(const StepCase& c, const Parts& p)
      : m(static_cast<size_t>(c.schedule.microbatches)), count(c.waves()), targets(count, 0.0) {
    for (size_t k = 0; k < p.count(); ++k) targets[k / m] += p.targets[k];
  }
  size_t m;
  size_t count;
  Numbers targets;  // per wave
};

/// They refer to both arguments.
std::vector<Weighing> wrong_weighings(const Waves& w, const Parts& p) {
  const auto waves = static_cast<double>(w.count);
  const auto m = static_cast<double>(w.m);
  const auto all = static_cast<double>(p.count());
  const size_t last = w.count - 1;
  const auto wave = [&w](size_t k) { return k / w.m; };
  std::vector<Weighing> weighings;
  if (w.count > 1)
    weighings = {
        {[=](size_t k) { return wave(k) == last ? 1.0 : 0.0; },
         "only the last wave arrived: zero the gradients once, before the first wave, and add up "
         "the losses of all"},
        {[=, &w, &p](size_t k) { return wave(k) == last ? p.total / w.targets[last] : 0.0; },
         "only the last wave arrived, as if it were the whole step: zero the gradients once, "
         "before the first wave, and add up the losses of all"},
        {[=](size_t k) { return wave(k) == 0 ? 1.0 : 0.0; },
         "only the first wave arrived: run the schedule once per wave, on the next microbatches"},
        {[=, &w, &p](size_t k) { return wave(k) == 0 ? p.total / w.targets[0] : 0.0; },
         "only the first wave arrived, as if it were the whole step: run the schedule once per "
         "wave, on the next microbatches"},
        {[=, &w, &p](size_t k) { return p.total / w.targets[wave(k)]; },
         "every wave is divided by its own targets, and the means are added up: all targets of the "
         "step count the same, divide by those of all waves"},
        {[=, &w, &p](size_t k) { return p.total / w.targets[wave(k)] / waves; },
         "a mean of the waves' means: all targets of the step count the same, divide by those of "
         "all waves"},
        {[=](size_t) { return 1 / waves; },
         "divided by the number of waves on top of the number of targets: averaged twice"},
        {[=](size_t k) { return wave(k) == 0 ? waves : 0.0; },
         "every wave ran on the first wave's microbatches: the next wave takes the next ones"},
    };
  const std::vector<Weighing> others = {
      {[=](size_t) { return 1 / m; },
       "divided by the number of microbatches on top of the number of targets: averaged twice"},
      {[=](size_t) { return 1 / all; },
       "divided by the number of microbatches on top of the number of targets: averaged twice"},
      {[&p](size_t k) { return p.total / p.targets[k]; },
       "the microbatches' means are added up: divide by the targets of the whole step"},
      {[=, &p](size_t k) { return p.total / p.targets[k] / m; },
       "a mean of means: divide by the targets of the whole step"},
      {[=, &p](size_t k) { return p.total / p.targets[k] / all; },
       "a mean of means: divide by the targets of the whole step"},
      {[&p](size_t) { return p.total; },
       "a sum over all targets, not a mean: hand the number of targets of the step to run_actions"},
      {[=, &p](size_t) { return p.total / p.targets[0] / all; },
       "every microbatch is counted as if it had as many targets as the first: count those of "
       "all"},
  };
  weighings.insert(weighings.end(), others.begin(), others.end());
  return weighings;
}

/// Every stage clipped by the norm of its own gradients.
Numbers clipped_by_stage(const std::vector<Parcel>& results, const Numbers& whole,
                         double max_norm) {
  Numbers all;
  auto next = whole.begin();
  for (const Parcel& result : results) {
    const auto size = static_cast<std::ptrdiff_t>(result.tensor("gradients0").numel());
    const Numbers own = clipped(Numbers(next, next + size), max_norm);
    all.insert(all.end(), own.begin(), own.end());
    next += size;
  }
  return all;
}

/// Clipped after every wave, as the gradients add up.
Numbers clipped_by_wave(const Waves& w, const Parts& p, double max_norm) {
  Numbers sum(p.weights.size(), 0.0);
  for (size_t wave = 0; wave < w.count; ++wave) {
    const Numbers own = p.combine([&](size_t k) { return k / w.m == wave ? 1.0 : 0.0; });
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += own[i];
    sum = clipped(sum, max_norm);
  }
  return sum;
}

std::vector<Mistake> gradient_mistakes(const std::vector<Parcel>& results, const StepCase& c,
                                       const Parts& p) {
  const Waves w(c, p);
  std::vector<Mistake> mistakes;
  if (c.max_norm > 0) {
    mistakes.push_back({p.sum(),
                        "the gradients are not clipped when the optimizer gets them: call "
                        "lab::clip_gradients behind the last wave and before the update"});
    mistakes.push_back(
        {clipped_by_stage(results, p.sum(), c.max_norm),
         "each stage is clipped by the norm of its own gradients: it is the norm of the whole "
         "model's that counts; lab::clip_gradients with `pipeline` knows it"});
    mistakes.push_back({clipped_by_wave(w, p, c.max_norm),
                        "the gradients are clipped after every wave: clip once, when all have been "
                        "added up"});
  }
  for (const Weighing& weighing : wrong_weighings(w, p))
    mistakes.push_back(
        {clipped(p.combine(weighing.factor), c.max_norm), "the gradients: " + weighing.message});
  if (c.leftover != 0) {
    Numbers with_leftover = p.sum();
    for (double& g : with_leftover) g += c.leftover;
    mistakes.push_back({with_leftover,
                        "the gradients from before the step are still in them: call "
                        "stage.zero_gradients() first, on every stage"});
  }
  return mistakes;
}

std::string calls_in_words(const std::vector<Parcel>& results, size_t rank, const Parts& p) {
  const Numbers waves = results[rank].numbers("waves0");
  if (waves.empty()) return "\nrun_actions was never called on this rank";
  std::string text = "\nrun_actions was called with the microbatches from number";
  for (double first : waves) text += fmt::format(" {}", first);
  text += " on; loss with total_targets =";
  for (double total : results.back().numbers("totals0")) text += fmt::format(" {}", total);
  return text + fmt::format("; the step has {} targets", p.total);
}

}  // namespace

void expect_gradients(const std::vector<Parcel>& results, const StepCase& c, const Parts& p) {
  expect_parts_of(
      p.expected("the gradients", clipped(p.sum(), c.max_norm)),
      [&] { return gradient_mistakes(results, c, p); }, results, "gradients0",
      [&](size_t rank) { return calls_in_words(results, rank, p); });
}

void expect_mean_loss(const std::vector<Parcel>& results, const StepCase& c, const Parts& p) {
  Expected loss =
      p.expected_loss("the returned loss", p.combine_losses([](size_t) { return 1.0; }));
  const Waves w(c, p);
  for (const Weighing& weighing : wrong_weighings(w, p))
    loss.mistakes.push_back(
        {{p.combine_losses(weighing.factor)}, "the returned loss: " + weighing.message});
  expect_losses(results, "loss0", loss);
}

}  // namespace lab05
