// Task 3: every rank's own step, and what happens to the weights afterwards.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>

#include "tests/grading/reference.h"
#include "tests/grading/training_judge.h"
#include "tests/labs/03_weight_aggregation/weights.h"

namespace lab03::task3 {
namespace {

using lab::Tensor;
using lab::grading::JobOptions;
using lab::grading::late_messages;
using lab::grading::Operation;
using lab::grading::Parcel;
using lab::grading::StepContract;
using lab::grading::stop;
using lab::grading::TrainingCase;

/// Some steps, and when weights are averaged.
struct Steps {
  TrainingCase training;
  int64_t first_step = 1;
  std::vector<int64_t> every = {};  // per step
  Numbers shares = {};              // per rank
  bool start_apart = false;         // each rank with different weights

  size_t count() const { return training.steps.size(); }
  int64_t number(size_t step) const { return first_step + static_cast<int64_t>(step); }
  bool is_due(size_t step, int64_t shift = 0) const {
    return (number(step) + shift) % every[step] == 0;
  }
  std::string place(size_t step) const {
    return fmt::format("\nin step {}, every = {}", number(step), every[step]);
  }
};

std::string entry(const char* name, size_t step) { return fmt::format("{}.{}", name, step); }

Numbers numbers(const Parcel& result, const char* name, size_t step) {
  return lab::grading::to_doubles(result.tensor(entry(name, step)));
}

std::vector<Operation> sent_in(const Parcel& result, size_t step) {
  return operations_of(result.part(entry("traffic", step)));
}

/// The average contains the update of the step that it is due after.
void expect_update_first(const Steps& s, const std::vector<Parcel>& ranks) {
  for (size_t r = 0; r < ranks.size(); ++r)
    for (size_t step = 0; step < s.count(); ++step) {
      const std::string& events = ranks[r].text(entry("events", step));
      const size_t update = events.find("update");
      if (update != std::string::npos && events.find("average") < update)
        stop(
            fmt::format("rank {}: the weights are averaged before the local step: average after "
                        "the update of this step, so that the average contains it{}: {}",
                        r, s.place(step), events));
    }
}

/// Whether weights were averaged in a step, or sent for nothing.
bool averages_in(const Parcel& result, size_t step, size_t ranks) {
  uint64_t bytes = 0;
  for (const Operation& operation : sent_in(result, step)) bytes += operation.bytes;
  return numbers(result, "weights", step) != numbers(result, "updated", step) ||
         result.text(entry("events", step)).find("average") != std::string::npos ||
         static_cast<double>(bytes * ranks) >= result.number("weight_bytes");
}

std::string wrong_schedule(const Steps& s, const Parcel& result,
                           const std::vector<size_t>& averaged) {
  const auto as_if = [&](int64_t shift) {
    for (size_t step = 0; step < s.count(); ++step)
      if (std::ranges::count(averaged, step) != (s.is_due(step, shift) ? 1 : 0)) return false;
    return true;
  };
  bool counted_anew = s.first_step > 1;
  for (size_t step = 0; step < s.count(); ++step)
    counted_anew = counted_anew && (std::ranges::count(averaged, step) == 1) ==
                                       ((static_cast<int64_t>(step) + 1) % s.every[step] == 0);
  if (counted_anew)
    return "averaged as if the first of these steps were step 1: the argument step decides, not a "
           "separate counter or the optimizer's number of updates";
  if (averaged.empty()) return "the weights are never averaged: each rank goes its own way";
  const bool in_vain = std::ranges::all_of(averaged, [&](size_t step) {
    return s.is_due(step) || numbers(result, "weights", step) == numbers(result, "updated", step);
  });
  if (averaged.size() == s.count() && in_vain)
    return "too much traffic: weights are sent in every step, although their average is used only "
           "where it is due. Send nothing between averages";
  if (averaged.size() == s.count())
    return "the weights are averaged after every step, though an average is due only after steps "
           "k, 2k, ...";
  if (as_if(1)) return "averaged one step too early: step is counted from 1, pass it on as it is";
  if (as_if(-1)) return "averaged one step too late";
  return "averaged after the wrong steps: the arguments step and aggregation.every decide, in "
         "every call anew";
}

void expect_schedule(const Steps& s, const std::vector<Parcel>& ranks) {
  if (ranks.size() == 1) return;  // the average of one rank is what it has
  for (size_t r = 0; r < ranks.size(); ++r) {
    std::vector<size_t> averaged;
    std::vector<int64_t> in_words;
    std::vector<int64_t> due;
    for (size_t step = 0; step < s.count(); ++step) {
      if (s.is_due(step)) due.push_back(s.number(step));
      if (!averages_in(ranks[r], step, ranks.size())) continue;
      averaged.push_back(step);
      in_words.push_back(s.number(step));
    }
    if (in_words != due)
      stop(fmt::format(
          "{}\nrank {}, steps {} to {}, every = {}{}: due after [{}]; averaged or sent "
          "in [{}]",
          wrong_schedule(s, ranks[r], averaged), r, s.number(0), s.number(s.count() - 1),
          s.every[0], s.every.back() == s.every[0] ? "" : " except in the last step",
          fmt::join(due, ", "), fmt::join(in_words, ", ")));
  }
}

/// Between averages a rank waits for nobody: not even in a barrier, which has no bytes.
void expect_silence(const Steps& s, const Parcel& result, size_t r, size_t step) {
  const std::vector<Operation> sent = sent_in(result, step);
  if (!sent.empty())
    stop(
        fmt::format("no average is due, so a rank should take part in no message, not even in a "
                    "barrier: if all ranks meet in every step, every step is as slow as its "
                    "slowest rank{}, rank {}: {}",
                    s.place(step), r, in_words(sent)));
  if (numbers(result, "weights", step) != numbers(result, "updated", step))
    stop(fmt::format("rank {}: no average is due, and yet the weights change after the update{}", r,
                     s.place(step)));
}

/// Hypotheses about averages of something else.
void add_mistakes(const Steps& s, const std::vector<Parcel>& ranks, size_t step,
                  const RankWeights& updated, std::vector<lab::grading::Mistake>& mistakes) {
  Numbers targets;
  for (const auto& microbatches : s.training.steps[step]) {
    double& count = targets.emplace_back();
    for (const lab::TokenBatch& batch : microbatches)
      count += static_cast<double>(batch.target_count());
  }
  double all = 0;
  for (const double count : targets) all += count;
  const double unknown = std::nan("");
  mistakes.push_back(
      {updated.combine([&](size_t r) { return all > 0 ? targets[r] / all : unknown; }),
       "weighted by the targets of this step: pass on aggregation.share"});
  RankWeights before = updated;
  for (size_t r = 0; r < ranks.size(); ++r)
    before.values[r] = step == 0 ? lab::grading::to_doubles(ranks[r].tensor("start"))
                                 : numbers(ranks[r], "weights", step - 1);
  mistakes.push_back({before.average(),
                      "this is the average of the weights before this step: average the ranks' "
                      "weights after their updates"});
}

/// All weights travel together: each message would pay the latency.
void expect_one_message(const Steps& s, const Parcel& result, size_t r, size_t step) {
  const std::vector<Operation> sent = sent_in(result, step);
  if (sent.size() > 1)
    stop(
        fmt::format("{} messages, each of which pays the latency: average all weights at once, "
                    "model.parameters(), and send nothing else{}, rank {}: {}",
                    sent.size(), s.place(step), r, in_words(sent)));
}

void expect_average(const Steps& s, const std::vector<Parcel>& ranks, size_t step,
                    const std::function<std::string(size_t)>& name) {
  RankWeights updated{.values = {}, .shares = s.shares, .name = name};
  for (const Parcel& result : ranks) updated.values.push_back(numbers(result, "updated", step));
  const std::vector<Numbers> got = tensors_of(ranks, entry("weights", step));
  expect_on_every_rank(
      got,
      [&](size_t r) {
        auto expected = updated.expected(r, got, "the weights after the average");
        expected.mistakes = [&, usual = expected.mistakes] {
          std::vector<lab::grading::Mistake> mistakes = usual();
          add_mistakes(s, ranks, step, updated, mistakes);
          return mistakes;
        };
        return expected;
      },
      [&](size_t) { return s.place(step).substr(1); }, lab::grading::Blame::kLastRank);
  expect_same_bits(got, fmt::format("after the average of step {} the weights", s.number(step)));
  for (size_t r = 0; r < ranks.size(); ++r) {
    expect_one_aggregation(sent_in(ranks[r], step),
                           static_cast<uint64_t>(ranks[r].number("weight_bytes")), r, ranks.size(),
                           "too much traffic: in a step with an average the weights travel once, "
                           "and nothing else does" +
                               s.place(step));
    expect_one_message(s, ranks[r], r, step);
  }
}

/// Every update is the one that an optimizer of this rank's own makes of the gradients so far.
void expect_own_state(const Steps& s, const Parcel& result, size_t r) {
  Tensor weights = result.tensor("start").clone();
  const auto optimizer = lab::grading::reference_optimizer(s.training.optimizer, weights.numel());
  for (size_t step = 0; step < s.count(); ++step) {
    optimizer->step(weights, result.tensor(entry("gradients", step)), s.training.rate(step));
    const Numbers wanted = lab::grading::to_doubles(weights);
    lab::grading::expect(
        numbers(result, "updated", step),
        {.what =
             fmt::format("rank {}: the update is not the one that the optimizer makes of this "
                         "rank's own gradients so far: the optimizer's state stays with its rank, "
                         "and is neither set nor averaged{}\nthe weights after optimizer.step",
                         r, s.place(step)),
         .values = wanted,
         .tolerance = lab::grading::relative_tolerance(wanted, 1e-6, 1)});
    weights = result.tensor(entry("weights", step)).clone();
  }
}

void judge(const Steps& s, const std::vector<Parcel>& ranks) {
  expect_update_first(s, ranks);
  judge_steps(s.training, ranks,
              {.gradient = StepContract::Gradient::kOwn,
               .loss = StepContract::Loss::kOwnMean,
               .updates_only = false,
               .loss_of_every_microbatch = true});
  expect_schedule(s, ranks);
  for (size_t r = 0; r < ranks.size(); ++r) expect_own_state(s, ranks[r], r);
  lab::grading::TrainingOracle oracle(s.training);
  for (size_t step = 0; step < s.count(); ++step)
    for (size_t r = 0; r < ranks.size(); ++r)
      if (!s.is_due(step)) expect_silence(s, ranks[r], r, step);
  for (size_t step = 0; step < s.count(); ++step)
    if (s.is_due(step)) expect_average(s, ranks, step, [&](size_t i) { return oracle.name(i); });
}

/// The cases of all labs, each with another k, first step and shares.
std::vector<Steps> steps_for(int ranks, uint64_t seed) {
  struct Schedule {
    int64_t first_step;
    int64_t every;
    Numbers shares;  // of up to five ranks, before they are made to add up to 1
    bool start_apart;
  };
  const std::vector<Schedule> schedules = {
      {1, 1, {1, 1, 1, 1, 1}, false}, {1, 2, {4, 1, 3, 2, 5}, false},
      {8, 3, {1, 2, 5, 1, 3}, true},  {5, 2, {3, 0, 1, 2, 0}, false},
      {1, 1, {2, 3, 1, 1, 2}, true},  {1, 1, {2, 1, 3, 1, 1}, true},
      {1, 5, {1, 1, 2, 1, 1}, false}, {3'000'000'001, 8, {5, 2, 1, 3, 0}, false},
  };
  const Schedule seldom = {1, 100, {5, 2, 1, 3, 0}, false};  // two ranks take 120 steps
  const Schedule always = {1, 1, {5, 2, 1}, false};          // three take 20
  const std::vector<TrainingCase> cases =
      lab::grading::draw_cases({.replicas = ranks, .microbatches = 5, .unequal_counts = true},
                               1000 * lab::grading::scenario_seed() + seed);
  std::vector<Steps> all;
  for (size_t k = 0; k < cases.size(); ++k) {
    const bool many = cases[k].steps.size() >= 20;
    const Schedule& schedule = cases[k].steps.size() > 100 ? seldom
                               : many && ranks == 3        ? always
                                                           : schedules[k % schedules.size()];
    Steps s{.training = cases[k],
            .first_step = schedule.first_step,
            .every = std::vector(cases[k].steps.size(), schedule.every),
            .start_apart = schedule.start_apart};
    if (s.count() > 5) s.every.back() = 1;    // as at the end of a run
    if (many) s.training.optimizer = "adam";  // it has a state
    if (k == 4)
      s.training.learning_rate = 0;  // replicas that start apart are averaged all the same
    double sum = 0;
    for (int r = 0; r < ranks; ++r) sum += schedule.shares[static_cast<size_t>(r)];
    for (int r = 0; r < ranks; ++r)
      s.shares.push_back(schedule.shares[static_cast<size_t>(r)] / sum);
    all.push_back(s);
  }
  return all;
}

void expect_training(int ranks, uint64_t seed, JobOptions options) {
  options.given = {"1b", "2"};
  const std::vector<Steps> all = steps_for(ranks, seed);
  std::vector<lab::grading::Call> calls;
  for (const Steps& s : all) {
    lab::grading::Call call{.scenario = "train_step", .inputs = {}, .name = s.training.name};
    for (int r = 0; r < ranks; ++r) {
      Parcel input = s.training.input(r);
      if (s.start_apart) input.set("seed", static_cast<double>(s.training.seed) + 1000 * r);
      input.set("first_step", static_cast<double>(s.first_step));
      input.set("every", Numbers(s.every.begin(), s.every.end()));
      input.set("share", s.shares[static_cast<size_t>(r)]);
      call.inputs.push_back(input);
    }
    calls.push_back(call);
  }
  judge_calls(calls, options,
              [&](size_t k, const std::vector<Parcel>& results) { judge(all[k], results); });
}

TEST(Task3, TwoRanksWithLateMessages) { expect_training(2, 32, late_messages(31)); }

TEST(Task3, FiveRanksInAnyOrder) { expect_training(5, 33, late_messages(32)); }

TEST(Task3, OneRankAloneIsLab01) { expect_training(1, 31, late_messages(33)); }

TEST(Task3, ThreeRanks) { expect_training(3, 30, {}); }

}  // namespace
}  // namespace lab03::task3
