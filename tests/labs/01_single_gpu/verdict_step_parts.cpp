// See verdict_step_parts.h.
#include "tests/labs/01_single_gpu/verdict_step_parts.h"

#include <algorithm>
#include <cmath>
#include <sstream>

#include "tests/labs/01_single_gpu/random_input.h"

namespace lab01 {

using lab::TokenBatch;
using lab::grading::Mistake;
using lab::grading::Parcel;

namespace {

constexpr int64_t kVocab = 24;

/// Clipped after every microbatch, as the gradients add up.
Numbers clipped_in_the_loop(const Parts& p, double max_norm) {
  Numbers sum(p.gradients[0].size(), 0.0);
  for (const Numbers& gradients : p.gradients) {
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += gradients[i] / p.total;
    clip(sum, max_norm);
  }
  return sum;
}

}  // namespace

TokenBatch tokens(const std::vector<int64_t>& lengths, uint64_t seed) {
  return random_tokens(lengths, 8, kVocab, seed);
}

Case equal_microbatches() {
  return {.microbatches = {tokens({8, 8}, 41), tokens({8, 8}, 42), tokens({8, 8}, 43)}};
}

Case unequal_microbatches() {
  return {.microbatches = {tokens({8, 8, 8}, 44), tokens({3}, 45), tokens({5, 6}, 46)}};
}

Parcel input_of(const Case& c) {
  Parcel input;
  input.set("microbatches", static_cast<double>(c.microbatches.size()));
  for (size_t k = 0; k < c.microbatches.size(); ++k)
    input.set("microbatch" + std::to_string(k), c.microbatches[k]);
  input.set("max_norm", c.max_norm);
  input.set("leftover", c.leftover);
  input.set_text("optimizer", c.optimizer);
  input.set("steps", c.steps);
  input.set("learning_rate", kLearningRate);
  return input;
}

double norm(const Numbers& values) {
  double squares = 0;
  for (double value : values) squares += value * value;
  return std::sqrt(squares);
}

void clip(Numbers& gradients, double max_norm) {
  const double factor = max_norm / norm(gradients);
  if (max_norm > 0 && factor < 1)
    for (double& g : gradients) g *= factor;
}

Parts::Parts(const Case& c) {
  const Parcel parcel = lab::grading::reference("microbatch_gradients", input_of(c));
  losses = parcel.numbers("losses");
  for (size_t k = 0; k < c.microbatches.size(); ++k) {
    gradients.push_back(lab::grading::to_doubles(parcel.tensor("gradients" + std::to_string(k))));
    targets.push_back(static_cast<double>(c.microbatches[k].target_count()));
    total += targets.back();
  }
  weights = lab::grading::to_doubles(parcel.tensor("weights"));
  begins = parcel.numbers("begins");
  std::istringstream lines(parcel.text("names"));
  for (std::string line; std::getline(lines, line);) names.push_back(line);
}

std::string Parts::name(size_t i) const {
  const auto next = std::upper_bound(begins.begin(), begins.end(), static_cast<double>(i));
  const auto parameter = static_cast<size_t>(next - begins.begin()) - 1;
  return names[parameter] + ", element " +
         std::to_string(i - static_cast<size_t>(begins[parameter]));
}

std::vector<Weighing> wrong_weighings(const Parts& p) {
  const auto m = static_cast<double>(p.count());
  const size_t last = p.count() - 1;
  const auto is_last = [last](size_t k) { return k == last ? 1.0 : 0.0; };
  const auto is_first = [](size_t k) { return k == 0 ? 1.0 : 0.0; };
  return {
      {[&p](size_t k) { return 1 / p.targets[k]; },
       "the microbatches' means are added up; were they averaged? Divide each microbatch's sum by "
       "the targets of the whole step (section 2.2)"},
      {[&p, m](size_t k) { return 1 / (m * p.targets[k]); },
       "a mean of means: a target in a microbatch with few targets counts more than one in a large "
       "microbatch; divide by the targets of the whole step (section 2.2)"},
      {[](size_t) { return 1.0; },
       "a sum over all targets, not a mean: pass the number of targets of the whole step to loss"},
      {[&p, m](size_t) { return 1 / (m * p.total); },
       "divided by the number of microbatches on top of the number of targets: averaged twice"},
      {[&p, is_last](size_t k) { return is_last(k) / p.total; },
       "only the last microbatch arrived: is something zeroed or overwritten inside the loop?"},
      {[&p, is_last](size_t k) { return is_last(k) / p.targets[k]; },
       "only the last microbatch arrived, as if it were the whole step: is something zeroed or "
       "overwritten inside the loop?"},
      {[&p, is_first](size_t k) { return is_first(k) / p.total; },
       "only the first microbatch arrived: does the loop run over all microbatches?"},
      {[&p, is_first](size_t k) { return is_first(k) / p.targets[k]; },
       "only the first microbatch arrived, as if it were the whole step: does the loop run over "
       "all microbatches?"},
      {[&p, m](size_t) { return 1 / (m * p.targets[0]); },
       "every microbatch is counted as if it had as many targets as the first: count the targets "
       "of all (section 2.2)"},
  };
}

std::vector<Mistake> gradient_mistakes(const Parts& p, const Case& c, const Numbers& unclipped) {
  std::vector<Mistake> mistakes;
  for (const Weighing& weighing : wrong_weighings(p)) {
    Numbers gradients = p.combine(p.gradients, weighing.factor);
    clip(gradients, c.max_norm);
    mistakes.push_back({gradients, "the gradients: " + weighing.message});
  }
  if (c.leftover != 0) {
    Numbers with_leftover = unclipped;
    for (double& g : with_leftover) g += c.leftover;
    mistakes.push_back({with_leftover,
                        "the gradients from before the step are still in them: call "
                        "model.zero_gradients() first"});
  }
  if (c.max_norm > 0) {
    mistakes.push_back({unclipped,
                        "the gradients are not clipped when the optimizer gets them: call "
                        "lab::clip_gradients after the last backward and before the update"});
    mistakes.push_back({clipped_in_the_loop(p, c.max_norm),
                        "the gradients are clipped after every microbatch: clip once, when all "
                        "have been added up"});
  }
  return mistakes;
}

}  // namespace lab01
