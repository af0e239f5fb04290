// Task 4: lab 02's step, with messages during the last backward pass only.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <sstream>

#include "tests/grading/training_judge.h"
#include "tests/grading/verdict.h"

namespace lab08::task4 {
namespace {

using lab::grading::JobOptions;
using lab::grading::Operation;
using lab::grading::Parcel;
using lab::grading::StepContract;
using lab::grading::stop;
using lab::grading::TrainingCase;

std::vector<std::string> words(const std::string& text) {
  std::istringstream stream(text);
  return {std::istream_iterator<std::string>(stream), {}};
}

/// A rank without a microbatch announces its gradients itself.
void expect_last_to_first(const std::vector<std::string>& events, const std::string& where) {
  size_t before = SIZE_MAX;
  for (const std::string& event : events) {
    if (!event.starts_with("ready:")) continue;
    const size_t parameter = std::stoul(event.substr(6));
    if (parameter >= before)
      stop(
          "a rank without a microbatch does not call ready in order from the last parameter to the "
          "first" +
          where);
    before = parameter;
  }
}

/// The number of targets leaves before anything is computed.
void expect_begin(const TrainingCase& c, const std::vector<std::string>& events, size_t r,
                  size_t step, const std::string& where) {
  const auto is_begin = [](const std::string& event) { return event.starts_with("begin:"); };
  const auto begin = std::ranges::find_if(events, is_begin);
  if (begin == events.end())
    stop("a step without begin: call it on every rank, since it posts the number of targets" +
         where);
  int64_t targets = 0;
  for (const lab::TokenBatch& batch : c.steps[step][r]) targets += batch.target_count();
  if (std::stol(begin->substr(6)) != targets)
    stop(fmt::format("begin is given {} targets; this rank's microbatches have {} in this step{}",
                     begin->substr(6), targets, where));
  if (std::ranges::count_if(events, is_begin) > 1)
    stop("train_step calls begin more than once in a step" + where);
  if (std::ranges::count(events, "finish") > 1)
    stop(
        "train_step calls finish more than once in a step: gradients that are means already are "
        "divided again" +
        where);
  if (begin != events.begin())
    stop(
        "begin comes after a forward pass: the number of targets needs no gradient, so it can "
        "travel during the whole step" +
        where);
}

/// When this rank's gradients were announced, and when its first bucket was posted.
void expect_order(const TrainingCase& c, const Parcel& rank, size_t r, size_t step) {
  const std::vector<std::string> events = words(rank.text(fmt::format("events.{}", step)));
  const size_t microbatches = c.steps[step][r].size();
  const std::string where = fmt::format("\nrank {}, step {}, {} microbatches: {}", r, step + 1,
                                        microbatches, rank.text(fmt::format("events.{}", step)));
  expect_begin(c, events, r, step, where);
  if (microbatches == 0) expect_last_to_first(events, where);
  // A rank may leave out microbatches without targets.
  const auto passes_in_all = static_cast<size_t>(std::ranges::count(events, "backward"));
  size_t passes = 0;
  bool in_pass = false;
  bool finished = false;
  size_t last_of_second_layer = 0;  // buckets posted by then
  for (const std::string& event : events) {
    if (event == "backward") ++passes;
    if (event == "backward" || event == "end") in_pass = event == "backward";
    if (event == "finish" && in_pass)
      stop("finish is called inside a backward pass: wait when there is nothing left to compute" +
           where);
    if (event == "finish") finished = true;
    if (event == "update" && !finished)
      stop("the optimizer stepped before finish: it got gradients of this rank alone" + where);
    if (!event.starts_with("ready:")) continue;
    if (passes < passes_in_all)
      stop(
          "gradients are sent before they are complete: only during the last backward pass of "
          "the step may when_gradient_ready be set (no_sync)" +
          where);
    if (passes_in_all > 0 && !in_pass)
      stop(
          "gradients are sent after the backward pass, not during it: nothing overlaps; set "
          "when_gradient_ready before the last backward pass" +
          where);
    if (event.starts_with("ready:10:")) last_of_second_layer = std::stoul(event.substr(9));
  }
  if (passes_in_all > 0 && c.model.layers > 1 && last_of_second_layer == 0)
    stop(
        "no bucket was posted before the backward pass of the first layer began, though gradients "
        "of later layers were complete: call ready for each gradient as it becomes complete" +
        where);
}

/// One all_reduce per bucket and one for the targets, however many microbatches there are.
void expect_traffic(const Parcel& rank, size_t r, size_t step) {
  const std::vector<Operation> sent = operations_of(rank.part(fmt::format("traffic.{}", step)));
  const std::vector<std::string> events = words(rank.text(fmt::format("events.{}", step)));
  size_t buckets = 0;
  for (const std::string& event : events)
    if (event.starts_with("buckets:")) buckets = std::stoul(event.substr(8));
  uint64_t bytes = 0;
  size_t all_reduces = 0;
  for (const Operation& operation : sent) {
    if (operation.kind != lab::OpKind::kAllReduce)
      stop(
          fmt::format("train_step sends something besides the gradients and the number of targets\n"
                      "rank {}, step {}: {} of {} bytes",
                      r, step + 1, lab::op_name(operation.kind), operation.bytes));
    bytes += operation.bytes;
    ++all_reduces;
  }
  const auto weights = static_cast<uint64_t>(rank.tensor("start").numel());
  if (all_reduces != buckets + 1 || bytes != (weights + 1) * sizeof(float))
    stop(fmt::format(
        "a step sends {} than its gradients and the number of targets, once\nrank {}, step {}: {} "
        "all_reduces of {} bytes together; expected {} of {} bytes",
        bytes > (weights + 1) * sizeof(float) || all_reduces > buckets + 1 ? "more" : "less", r,
        step + 1, all_reduces, bytes, buckets + 1, (weights + 1) * sizeof(float)));
}

void judge(const TrainingCase& c, const std::vector<Parcel>& ranks) {
  for (size_t step = 0; step < c.steps.size(); ++step)
    for (size_t r = 0; r < ranks.size(); ++r) expect_order(c, ranks[r], r, step);
  judge_steps(c, ranks,
              {.gradient = StepContract::Gradient::kOfAllReplicas,
               .loss = StepContract::Loss::kOwnMean,
               .how_to_average = "begin, ready for every gradient, and finish before the update",
               .how_to_clip = "call lab::clip_gradients after finish and before the update"});
  for (size_t step = 0; step < c.steps.size(); ++step)
    for (size_t r = 0; r < ranks.size(); ++r) expect_traffic(ranks[r], r, step);
}

void expect_training(int ranks, uint64_t seed, JobOptions options) {
  options.given = {"1", "2", "3"};
  judge_training({.replicas = ranks, .microbatches = 5, .unequal_counts = true}, seed, "train_step",
                 options, judge);
}

TEST(Task4, TwoRanksLateMessages) { expect_training(2, 81, lab::grading::late_messages(82)); }

TEST(Task4, FourRanksInAnyOrder) { expect_training(4, 83, lab::grading::late_messages(84)); }

TEST(Task4, OneRankIsLab01) { expect_training(1, 85, lab::grading::late_messages(86)); }

TEST(Task4, ThreeRanksOverGloo) { expect_training(3, 87, {}); }

}  // namespace
}  // namespace lab08::task4
