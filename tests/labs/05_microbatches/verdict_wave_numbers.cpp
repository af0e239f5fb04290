// Gradients and losses of one wave.
#include "tests/labs/05_microbatches/verdict_wave_numbers.h"

#include <fmt/format.h>

#include <cmath>
#include <numeric>

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

std::vector<Weighing> wrong_weighings(const Parts& p) {
  const auto m = static_cast<double>(p.count());
  const double own = std::accumulate(p.targets.begin(), p.targets.end(), 0.0);
  const size_t last = p.count() - 1;
  return {
      {[&p](size_t k) { return p.total / p.targets[k]; },
       "every microbatch is divided by its own targets, and the means are added up: call loss with "
       "the total_targets that run_actions is given"},
      {[&p, m](size_t k) { return p.total / p.targets[k] / m; },
       "a mean of means: call loss with the total_targets that run_actions is given"},
      {[&p](size_t) { return p.total; },
       "a sum over the targets, not a mean: call loss with the total_targets that run_actions is "
       "given"},
      {[&p, own](size_t) { return p.total / own; },
       "divided by the targets of this wave: call loss with the total_targets that run_actions is "
       "given, those of all waves of the step"},
      {[m](size_t) { return 1 / m; },
       "divided by the number of microbatches, although loss has divided by all targets already: "
       "averaged twice"},
      {[last](size_t k) { return k == last ? 1.0 : 0.0; },
       "only the last microbatch arrived: is something zeroed or overwritten?"},
      {[](size_t k) { return k == 0 ? 1.0 : 0.0; }, "only the first microbatch arrived"},
  };
}

/// A way to mix microbatches up: from which of them each one gets its tensor.
struct MixUp {
  std::vector<double> activation_of;
  std::vector<double> logits_of;
  std::vector<double> gradient_of;
  std::string message;
};

std::vector<MixUp> mix_ups(size_t m) {
  std::vector<double> own(m);
  std::iota(own.begin(), own.end(), 0.0);
  const std::vector<double> reversed(own.rbegin(), own.rend());
  std::vector<double> next = own;
  std::rotate(next.begin(), next.begin() + 1, next.end());
  std::vector<double> previous = own;
  std::rotate(previous.begin(), previous.end() - 1, previous.end());
  const std::vector<double> last(m, static_cast<double>(m - 1));
  const std::string wrong = "a backward got the gradient of another microbatch";
  return {
      {own, last, own,
       "every backward of the last stage got the gradient of the last microbatch's logits: keep "
       "the logits of each microbatch until its backward"},
      {own, own, last, wrong + ", always that of the last: is one tensor used for all?"},
      {own, own, reversed, wrong + ": the last microbatch's for the first, and so on"},
      {own, reversed, reversed, wrong + ", on the last stage too: the last one's for the first"},
      {own, reversed, own, wrong + " on the last stage: the last one's for the first"},
      {own, own, next, wrong + ": that of the next one"},
      {own, own, previous, wrong + ": that of the one before"},
      {last, own, own,
       "every forward got the activation of the last microbatch: is one tensor used for all?"},
      {reversed, own, own,
       "a forward got the activation of another microbatch: the last one's for the first"},
  };
}

Numbers mixed_up(const WaveCase& c, const MixUp& mix_up) {
  Parcel input;
  set_microbatches(input, c.microbatches());
  input.set("stages", static_cast<double>(c.ranks()));
  input.set("total", static_cast<double>(kStepTargets));
  input.set("activation_of", mix_up.activation_of);
  input.set("logits_of", mix_up.logits_of);
  input.set("gradient_of", mix_up.gradient_of);
  return lab::grading::to_doubles(oracle("mixed_up", input).tensor("gradients"));
}

/// On every stage but the last one, what comes from behind has been divided by m once more.
Numbers divided_on_the_way(const std::vector<Parcel>& results, const Parts& p, bool on_the_last) {
  Numbers values = p.sum();
  size_t i = 0;
  for (size_t r = 0; r < results.size(); ++r) {
    const auto times = static_cast<double>(results.size() - 1 - r) + (on_the_last ? 1 : 0);
    const size_t size = results[r].tensor("gradients").values().size();
    for (const size_t end = i + size; i < end; ++i)
      values[i] *= std::pow(1.0 / static_cast<double>(p.count()), times);
  }
  return values;
}

std::vector<Mistake> mistakes(const std::vector<Parcel>& results, const WaveCase& c,
                              const Parts& p) {
  std::vector<Mistake> all;
  const auto add = [&](Numbers values, const std::string& message) {
    for (double& value : values) value += c.leftover;
    all.push_back({std::move(values), "the gradients: " + message});
  };
  if (c.leftover != 0)
    all.push_back({p.sum(),
                   "the gradients that were there before are gone: run_actions adds to them, since "
                   "a step may have several waves"});
  for (const Weighing& weighing : wrong_weighings(p))
    add(p.combine(weighing.factor), weighing.message);
  for (const bool on_the_last : {false, true})
    add(divided_on_the_way(results, p, on_the_last),
        "every stage divides what it hands on by the number of microbatches: the loss has done "
        "that for all of them");
  if (p.count() > 1 && c.differ_in != Microbatches::kShapes)  // others cannot be mixed up
    for (const MixUp& mix_up : mix_ups(p.count())) add(mixed_up(c, mix_up), mix_up.message);
  return all;
}

std::string totals_in_words(const Parcel& result) {
  const Numbers totals = result.numbers("totals");
  if (totals.empty()) return "";
  std::string text = "\nloss was called with total_targets =";
  for (double total : totals) text += fmt::format(" {}", total);
  return text + fmt::format("; run_actions was given {}", kStepTargets);
}

Expected right_gradients(const Parts& p, const WaveCase& c) {
  Expected expected = p.expected("the gradients", p.sum());
  for (double& value : expected.values) value += c.leftover;
  for (double& tolerance : expected.tolerance) tolerance += 1e-6 * c.leftover;
  return expected;
}

}  // namespace

std::string wrong_gradients(const std::vector<Parcel>& results, const WaveCase& c) {
  const Parts p = c.parts();
  return difference_on_ranks(right_gradients(p, c), {}, results, "gradients", {});
}

void expect_numbers(const std::vector<Parcel>& results, const WaveCase& c) {
  const Parts p = c.parts();
  expect_parts_of(
      right_gradients(p, c), [&] { return mistakes(results, c, p); }, results, "gradients",
      [&](size_t) { return totals_in_words(results.back()); });

  Expected loss =
      p.expected_loss("the returned loss", p.combine_losses([](size_t) { return 1.0; }));
  for (const Weighing& weighing : wrong_weighings(p))
    loss.mistakes.push_back(
        {{p.combine_losses(weighing.factor)}, "the returned loss: " + weighing.message});
  expect_losses(results, "loss", loss);
}

}  // namespace lab05
