// Task 3: what train_step hands to the optimizer, and the order of what it does. A wrong divisor is
// plain to see in the gradients; Adam would hide it.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <sstream>

#include "tests/grading/training_judge.h"
#include "tests/grading/verdict.h"

namespace lab01::task3 {
namespace {

using lab::grading::CaseLimits;
using lab::grading::MicrobatchPart;
using lab::grading::Numbers;
using lab::grading::Parcel;
using lab::grading::StepParts;
using lab::grading::stop;
using lab::grading::to_doubles;
using lab::grading::TrainingCase;
using lab::grading::Weighing;

/// "forward loss backward ... update".
void expect_order(const std::string& events) {
  std::istringstream words(events);
  int forward = 0;
  int losses = 0;
  int backward = 0;
  for (std::string word; words >> word;) {
    forward += word == "forward";
    losses += word == "loss";
    backward += word == "backward";
    if (losses > forward) stop("loss is called twice for one microbatch\nin this step: " + events);
    if (backward > losses)
      stop(
          "backward is called before loss has replaced the logits with their gradient: backward "
          "takes the scores for gradients\n"
          "in this step: " +
          events);
    if (forward > backward + 1)
      stop(
          "the forward pass of a microbatch begins before the backward pass of the previous one: "
          "the activations of both are in memory (section 2.6). Is that backward pass missing?\n"
          "in this step: " +
          events);
    if (word == "update" && losses > backward) {
      const bool comes_late = events.find("backward", events.find("update")) != std::string::npos;
      stop((comes_late
                ? "the optimizer steps before the last backward pass: what that adds to the "
                  "gradients comes too late"
                : "a microbatch has no backward pass: each needs one, even without targets") +
           std::string("\nin this step: ") + events);
    }
  }
}

/// Mistakes of a loop over microbatches.
std::vector<Weighing> weighings(const StepParts& all, size_t /*replica*/) {
  const std::vector<MicrobatchPart>& parts = all.microbatches;
  const double total = all.targets;
  const double of_first = parts[0].targets * static_cast<double>(parts.size());
  const auto so_far = [&parts](size_t number) {
    double sum = 0;
    for (size_t k = 0; k <= number; ++k) sum += parts[k].targets;
    return sum;
  };
  const auto first_empty =
      static_cast<size_t>(std::ranges::find(parts, 0.0, &MicrobatchPart::targets) - parts.begin());
  const auto divided = [](double by) { return 1 / std::max(by, 1.0); };
  std::vector<Weighing> all_weighings{
      {"every microbatch is counted as if it had as many targets as the first: count the targets "
       "of all (section 2.2)",
       [=](const MicrobatchPart&) { return divided(of_first); }},
      {"divided by the targets of the microbatches so far: count those of the whole step before "
       "the first call of loss",
       [=](const MicrobatchPart& b) { return divided(so_far(b.number)); }},
      {"the value that loss returned, which is already divided by all targets, is weighted once "
       "more by the microbatch's share of them",
       [=](const MicrobatchPart& b) { return b.targets * divided(total * total); }},
      {"the first microbatch without targets and all after it are missing: it does not end the "
       "step",
       [=](const MicrobatchPart& b) { return b.number < first_empty ? divided(total) : 0.0; }},
      {"divided by the targets of the last microbatch: add up those of all (+=)",
       [=, last = parts.back().targets](const MicrobatchPart&) { return divided(last); }}};
  for (const int bits : {8, 16})
    all_weighings.push_back(
        {fmt::format("the number of targets does not fit into {} bits: it is an int64_t", bits),
         [=](const MicrobatchPart&) { return 1 / std::fmod(total, std::exp2(bits)); }});
  for (size_t count = 2; count < parts.size(); ++count)
    all_weighings.push_back(
        {fmt::format("microbatches from number {} on are missing", count + 1),
         [=](const MicrobatchPart& b) { return b.number < count ? divided(total) : 0.0; }});
  return all_weighings;
}

void judge(const TrainingCase& c, const Parcel& result) {
  const auto entry = [](const char* name, size_t step) { return fmt::format("{}.{}", name, step); };
  for (size_t step = 0; step < c.steps.size(); ++step) {
    const std::string events = result.text(entry("events", step));
    if (result.numbers(entry("totals", step)).empty() &&
        events.find("backward") != std::string::npos)
      stop(
          fmt::format("call the function that is passed in, `loss`, and not one of your own\n"
                      "in step {}: loss was never called",
                      step + 1));
    expect_order(events);
  }
  judge_steps(c, {result},
              {.loss_of_every_microbatch = true,
               .how_to_clip = "call lab::clip_gradients after the last backward and before the "
                              "update",
               .weighings = weighings});
}

void expect_training(
    const std::vector<TrainingCase>& cases,
    const std::function<void(const TrainingCase&, const Parcel&)>& expect = judge) {
  lab::grading::judge_cases(
      cases, "train_step", {.network = lab::grading::Network::kNone},
      [&](const TrainingCase& c, const std::vector<Parcel>& ranks) { expect(c, ranks[0]); });
}

std::vector<TrainingCase> draw(const CaseLimits& limits, uint64_t seed) {
  return lab::grading::draw_cases(limits, 1000 * lab::grading::scenario_seed() + seed);
}

TEST(Task3, EveryTargetCountsTheSame) {
  std::vector<TrainingCase> cases = draw({.microbatches = 3}, 44);
  cases.resize(2);
  cases[1].max_norm = 0;  // clipped, a wrong mean would have the length of the right one
  expect_training(cases);
}

TEST(Task3, UpToThreeMicrobatches) { expect_training(draw({.microbatches = 3}, 40)); }

TEST(Task3, ManyMicrobatchesAndTargets) {
  std::vector<TrainingCase> cases = draw({.microbatches = 3}, 46);
  cases.resize(2);
  for (TrainingCase& c : cases) c.max_norm = 0;
  cases[0].name = "twelve microbatches and more";
  for (auto& replicas : cases[0].steps)
    for (uint64_t k = 0; k < 12; ++k)
      replicas[0].push_back(lab::grading::draw_tokens({4, 3}, 4, cases[0].model.vocab_size, k));
  cases[1].name = "one microbatch of more than 65,536 targets";
  cases[1].steps.resize(1);
  cases[1].steps[0][0].push_back(
      lab::grading::draw_tokens(std::vector<int64_t>(22'000, 4), 4, cases[1].model.vocab_size, 1));
  expect_training(cases);
}

TEST(Task3, OneMicrobatch) { expect_training(draw({.microbatches = 1}, 41)); }

TEST(Task3, LeftoversOfAStepThatBlewUp) {
  std::vector<TrainingCase> cases = draw({.microbatches = 3}, 42);
  cases.resize(3);
  cases[0].leftover = std::numeric_limits<float>::quiet_NaN();
  cases[1].leftover = std::numeric_limits<float>::infinity();
  cases[2].leftover = std::numeric_limits<float>::infinity();
  expect_training(cases);
}

TEST(Task3, AnyLossOfAnySize) {
  std::vector<TrainingCase> cases = draw({.microbatches = 3}, 43);
  const Numbers factors = {1e-4, 300, 1e-4, 1e-5, 1e5, 30, 1e-3, 1e-2};
  for (size_t k = 0; k < cases.size(); ++k)
    lab::grading::scale_loss(cases[k], factors[k] / cases[k].loss_factor);
  expect_training(cases);
}

TEST(Task3, LeavesTheGradients) {
  expect_training(draw({.microbatches = 3}, 45), [](const TrainingCase& c, const Parcel& result) {
    judge(c, result);
    for (size_t step = 0; step < c.steps.size(); ++step) {
      const Numbers left = to_doubles(result.tensor(fmt::format("left.{}", step)));
      if (left == to_doubles(result.tensor(fmt::format("gradients.{}", step)))) continue;
      const bool zero = std::ranges::all_of(left, [](double x) { return x == 0; });
      stop(
          fmt::format("in step {}: when it returns, model.gradients() is {}: leave there what the "
                      "optimizer got",
                      step + 1, zero ? "all 0" : "not what the optimizer got"));
    }
  });
}

}  // namespace
}  // namespace lab01::task3
