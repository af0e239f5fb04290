// Task 6: a step of a pipeline over one or several waves. A wrong divisor is plain to see in the
// gradients; Adam would hide it.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

#include "common/format.h"
#include "tests/grading/refusal.h"
#include "tests/grading/training_judge.h"
#include "tests/labs/05_microbatches/plans.h"
#include "tests/labs/05_microbatches/waves.h"

namespace lab05::task6 {
namespace {

using lab::counted;
using lab::OpKind;
using lab::Schedule;
using lab::TokenBatch;
using lab::grading::JobOptions;
using lab::grading::late_messages;
using lab::grading::Operation;
using lab::grading::Parcel;
using lab::grading::StepContract;
using lab::grading::StepParts;
using lab::grading::stop;
using lab::grading::TrainingCase;

/// Some steps of a pipeline with one schedule.
struct StepCase {
  TrainingCase training;
  Schedule schedule;
  bool standard = true;  // the order of one process, and its bits

  size_t m() const { return static_cast<size_t>(schedule.microbatches); }
  size_t waves(size_t step) const { return training.steps[step][0].size() / m(); }
  bool one_wave_each() const {
    return std::ranges::all_of(training.steps,
                               [&](const auto& step) { return step[0].size() == m(); });
  }
  /// `pipeline`: among several of the world, each of which takes steps of its own; -1: the only
  /// one.
  std::vector<Parcel> inputs(int pipeline = -1) const {
    std::vector<Parcel> all;
    for (int stage = 0; stage < training.stages(); ++stage) {
      all.push_back(training.input(stage));
      if (training.seed % 2 == 1) fill_missing_tokens(all.back(), training.model.vocab_size);
      all.back().set_text("schedule", to_text(schedule));
      all.back().set("pipeline", pipeline);
    }
    return all;
  }
};

/// "wave:0,1" -> "0,1", for each wave of a step.
std::vector<std::string> waves_of(const Parcel& stage, size_t step) {
  std::istringstream events(stage.text(fmt::format("events.{}", step)));
  std::vector<std::string> waves;
  const std::string prefix = "wave:";
  for (std::string word; events >> word;)
    if (word.starts_with(prefix)) waves.push_back(word.substr(prefix.size()));
  return waves;
}

/// Each wave takes the next m microbatches. (A solution that does not call run_actions is judged by
/// what comes out.)
void expect_waves(const StepCase& c, const Parcel& stage, size_t rank, size_t step) {
  const std::vector<std::string> got = waves_of(stage, step);
  std::vector<std::string> right;
  for (size_t first = 0; first < c.training.steps[step][0].size(); first += c.m()) {
    std::vector<size_t> numbers;
    for (size_t k = 0; k < c.m(); ++k) numbers.push_back(first + k);
    right.push_back(fmt::format("{}", fmt::join(numbers, ",")));
  }
  if (got.empty() || got == right) return;
  const bool all_the_first = got.size() > 1 && std::ranges::all_of(got, [&](const auto& wave) {
                               return wave == right[0];
                             });
  stop(fmt::format(
      "rank {}: {}\nthe waves took the microbatches {}; they should take {}\nin step {}", rank,
      all_the_first
          ? "every wave ran on the first wave's microbatches: each wave must take the next ones"
      : got.size() < right.size()
          ? "a wave is missing: run every wave on every rank, even one without targets"
          : "each wave must run the schedule on the next microbatches, in their order",
      fmt::join(got, " | "), fmt::join(right, " | "), step + 1));
}

void expect_one_update(const StepCase& c, const Parcel& stage, size_t rank, size_t step) {
  const double updates = stage.number(fmt::format("updates.{}", step));
  if (updates > 1)
    stop(
        fmt::format("rank {}: one step of training is one update: optimizer.step was called {} "
                    "times for {}; call it once, after the last wave",
                    rank, updates, counted(static_cast<int64_t>(c.waves(step)), "wave")));
  const std::string events = stage.text(fmt::format("events.{}", step));
  if (const size_t wave = events.rfind("wave:");
      wave != std::string::npos && events.find("update") < wave)
    stop(
        fmt::format("rank {}: the optimizer stepped before the last wave: call it once, when all "
                    "waves are done",
                    rank));
}

bool clips_over_stages(const StepCase& c) {
  return c.training.max_norm > 0 && c.training.stages() > 1;
}

std::vector<Operation> operations_in(const Parcel& stage, size_t step) {
  return operations_of(stage.part(fmt::format("traffic.{}", step)));
}

/// Clipping has an all_gather; nothing else has a collective.
void expect_no_other_collective(const StepCase& c, const Parcel& stage, size_t rank, size_t step) {
  bool clipped = false;
  const std::vector<Operation> operations = operations_in(stage, step);
  for (const Operation& operation : operations) {
    if (!is_collective(operation.kind)) continue;
    const bool sums = operation.kind == OpKind::kAllGather;
    if (sums && !clipped && clips_over_stages(c)) {
      clipped = true;
      continue;
    }
    if (sums && clipped && c.waves(step) > 1)
      stop(
          fmt::format("rank {}: clipped after every wave: clip once, when the gradients of all "
                      "waves have been added up\n{}",
                      rank, in_words(operations)));
    stop(fmt::format(
        "rank {} calls {}: only clip_gradients has a collective, one all_gather a step. "
        "No other stage needs the gradients, the number of targets or the loss\n{}",
        rank, op_name(operation.kind), in_words(operations)));
  }
}

/// Messages of a step, in their order, and what they are for.
struct StepMessage {
  Message message;
  bool clipping = false;  // its all_gather, instead of a message
  std::string purpose = {};
};

std::vector<StepMessage> messages_of_step(const StepCase& c, size_t rank, size_t step) {
  const int s = static_cast<int>(rank);
  const std::vector<TokenBatch>& all = c.training.steps[step][0];
  std::vector<StepMessage> messages;
  for (size_t wave = 0; wave < c.waves(step); ++wave)
    for (const Message& message :
         messages_in(c.schedule.stages[rank], s, std::span(all).subspan(wave * c.m(), c.m()),
                     c.training.model.dim))
      messages.push_back(
          {message, false,
           fmt::format("wave {} of step {}: run every wave on every rank, even one without targets",
                       wave + 1, step + 1)});
  if (!clips_over_stages(c)) return messages;
  const std::string clipping = fmt::format(
      "clipping in step {}: every rank must call clip_gradients in every step, even one without "
      "targets",
      step + 1);
  messages.push_back({{}, true, clipping});
  return messages;
}

/// If ranks wait forever: what the first rank to depart from its messages leaves out.
std::string why_they_stand_still(const StepCase& c, const std::vector<Parcel>& ranks,
                                 const std::string& diagnosis) {
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    std::vector<StepMessage> right;
    for (size_t step = 0; step < c.training.steps.size(); ++step)
      for (StepMessage& message : messages_of_step(c, rank, step))
        right.push_back(std::move(message));
    const std::vector<Operation> got = operations_of(ranks[rank]);
    const auto wrong = std::ranges::mismatch(
        got, right, [](const Operation& operation, const StepMessage& expected) {
          return expected.clipping ? operation.kind == OpKind::kAllGather
                                   : is_message(operation.kind) &&
                                         messages_of({operation}, 0)[0] == expected.message;
        });
    if (wrong.in2 == right.end()) continue;
    if (wrong.in1 != got.end() || ranks[rank].number("returned") != 0)
      return fmt::format("rank {} leaves out messages of {}\n{}", rank, wrong.in2->purpose,
                         diagnosis);
  }
  return diagnosis;
}

void expect_messages(const StepCase& c, const Parcel& stage, size_t rank, size_t step) {
  std::vector<Message> right;
  for (const StepMessage& expected : messages_of_step(c, rank, step))
    if (!expected.clipping) right.push_back(expected.message);
  const std::vector<Operation> operations = operations_in(stage, step);
  const std::string wrong =
      wrong_messages(static_cast<int>(rank), 0, messages_of(operations, 0), right);
  if (!wrong.empty())
    stop(fmt::format("the numbers are right, but {} in {} waves\nin step {}", wrong, c.waves(step),
                     step + 1));
  if (clips_over_stages(c) &&
      std::ranges::count(operations, OpKind::kAllGather, &Operation::kind) == 0)
    stop(
        fmt::format("the numbers are right, but rank {} has no part in clipping: call "
                    "lab04::clip_gradients with `pipeline` on every rank, in every step",
                    rank));
}

void judge_numbers(const StepCase& c, const std::vector<Parcel>& stages) {
  for (size_t step = 0; step < c.training.steps.size(); ++step)
    for (size_t rank = 0; rank < stages.size(); ++rank) {
      expect_waves(c, stages[rank], rank, step);
      expect_one_update(c, stages[rank], rank, step);
    }
  judge_steps(
      c.training, stages,
      {.loss = StepContract::Loss::kMeanOnLastStage,
       .bits_of_one_process = c.standard,
       .loss_in_parts = !c.one_wave_each(),  // each wave has its own sum
       .how_to_clip = "call lab04::clip_gradients(stage, max_gradient_norm, pipeline) after "
                      "the last wave and before the update",
       .weighings = [&c](const StepParts& all, size_t) { return wave_weighings(c.m(), all); }});
}

void judge(const StepCase& c, const std::vector<Parcel>& stages) {
  for (size_t step = 0; step < c.training.steps.size(); ++step)
    for (size_t rank = 0; rank < stages.size(); ++rank)
      expect_no_other_collective(c, stages[rank], rank, step);
  judge_numbers(c, stages);
  for (size_t step = 0; step < c.training.steps.size(); ++step)
    for (size_t rank = 0; rank < stages.size(); ++rank)
      expect_messages(c, stages[rank], rank, step);
}

/// No microbatch of this wave has a target.
void empty_wave(StepCase& c, size_t step, size_t wave) {
  std::vector<TokenBatch>& all = c.training.steps[step][0];
  for (size_t k = wave * c.m(); k < (wave + 1) * c.m(); ++k)
    all[k] = lab::grading::draw_tokens(std::vector<int64_t>(static_cast<size_t>(all[k].batch), 1),
                                       all[k].length, c.training.model.vocab_size, k);
}

/// A schedule of any kind for a case of several microbatches a step.
StepCase with_schedule(TrainingCase training, int m, size_t kind, uint64_t seed) {
  const Size size{training.stages(), m};
  training.name += fmt::format(", {} in waves of {}",
                               counted(std::ssize(training.steps[0][0]), "microbatch"), m);
  return {.training = std::move(training),
          .schedule = kind == 0   ? with_messages_beside(one_f_one_b_plan(size), true)
                      : kind == 1 ? with_messages_beside(gpipe_plan(size), false)
                                  : random_program(size, seed),
          .standard = kind < 2};
}

/// The last, the middle, and the first wave of a step are without targets.
StepCase with_empty_waves(TrainingCase training, int m) {
  training.name = "a wave without targets";
  training.optimizer = "adam";
  training.max_norm = 0;
  StepCase c = with_schedule(std::move(training), m, 0, 0);
  for (size_t step = 0; step < c.training.steps.size(); ++step) {
    const size_t last = c.waves(step) - 1;
    empty_wave(c, step, step == 0 ? last : step == 1 ? last / 2 : 0);
  }
  return c;
}

/// The cases of all labs, with schedules whose number of microbatches divides that of a step; the
/// simplest case with several waves comes first.
std::vector<StepCase> draw_steps(int stages, int microbatches, uint64_t seed) {
  seed += 1000 * lab::grading::scenario_seed();
  std::vector<int> divisors;
  for (int m = 1; m <= microbatches; ++m)
    if (microbatches % m == 0) divisors.push_back(m);
  const std::vector<TrainingCase> drawn = lab::grading::draw_cases(
      {.stages = stages, .microbatches = microbatches, .multiple_of = microbatches}, seed);
  std::vector<StepCase> cases;
  for (size_t i = 0; i < drawn.size(); ++i)
    cases.push_back(with_schedule(drawn[i], divisors[(divisors.size() / 4 + i) % divisors.size()],
                                  i % 3, seed + i));
  cases[0].training.leftover = 0.25F;
  cases.push_back(with_empty_waves(drawn[1], divisors[divisors.size() / 4]));
  return cases;
}

JobOptions given(JobOptions options) {
  options.given = {"3", "4b", "5"};
  return options;
}

enum class Cases { kAll, kFew };  // few: where many take long

void expect_cases(const std::vector<StepCase>& cases, JobOptions options) {
  std::vector<lab::grading::Call> calls;
  for (const StepCase& c : cases)
    calls.push_back({.scenario = "train_step", .inputs = c.inputs(), .name = c.training.name});
  options = given(options);
  options.explain = [&](size_t k, const std::vector<Parcel>& ranks, const std::string& diagnosis) {
    return why_they_stand_still(cases[k], ranks, diagnosis);
  };
  judge_calls(calls, options,
              [&](size_t k, const std::vector<Parcel>& ranks) { judge(cases[k], ranks); });
}

void expect_steps(int stages, int microbatches, uint64_t seed, const JobOptions& options,
                  Cases which = Cases::kAll) {
  std::vector<StepCase> cases = draw_steps(stages, microbatches, seed);
  if (which == Cases::kFew) cases.erase(cases.begin() + 3, cases.end() - 1);
  expect_cases(cases, options);
}

TEST(Task6, ThreeStagesInWaves) { expect_steps(3, 6, 60, late_messages(60)); }

TEST(Task6, TwoStagesInWaves) { expect_steps(2, 4, 61, late_messages(61)); }

TEST(Task6, OneStageIsLab01) { expect_steps(1, 6, 62, late_messages(62)); }

/// One wave of twelve microbatches in every kind of schedule, and a limit that is nearly 0.
TEST(Task6, LongWaves) {
  const std::vector<TrainingCase> drawn =
      lab::grading::draw_cases({.stages = 2, .microbatches = 12, .multiple_of = 12},
                               66 + 1000 * lab::grading::scenario_seed());
  std::vector<StepCase> cases;
  for (size_t kind = 0; kind < 3; ++kind)
    cases.push_back(with_schedule(drawn[kind], 12, kind, 66 + kind));
  cases[1].training.max_norm = 1e-20;
  cases[1].training.name += ", max_norm 1e-20";
  expect_cases(cases, late_messages(66));
}

TEST(Task6, FewerMicrobatchesThanStages) { expect_steps(6, 3, 63, late_messages(63), Cases::kFew); }

/// The ranks of the second one have other numbers in the world than in their pipeline.
TEST(Task6, TwoPipelinesThatKnowNothingOfEachOther) {
  const std::vector<StepCase> cases = draw_steps(2, 4, 65);
  std::vector<lab::grading::Call> calls;
  for (size_t k = 0; k < 2; ++k) {
    calls.push_back({.scenario = "train_step",
                     .inputs = cases[k + 2].inputs(0),
                     .name = "two pipelines: " + cases[k].training.name});
    for (Parcel& input : cases[k].inputs(1)) calls[k].inputs.push_back(std::move(input));
  }
  judge_calls(calls, given(late_messages(65)), [&](size_t k, const std::vector<Parcel>& ranks) {
    judge_numbers(cases[k + 2], {ranks.begin(), ranks.begin() + 2});
    judge_numbers(cases[k], {ranks.begin() + 2, ranks.end()});
  });
}

TEST(Task6, ThreeProcesses) { expect_steps(3, 4, 64, {}, Cases::kFew); }

/// Numbers of microbatches that are no waves are refused on every rank, before anything is done.
void expect_refusals(int stages, int m, const std::vector<int>& counts, uint64_t seed) {
  std::vector<lab::grading::Call> calls;
  std::vector<StepCase> cases;
  for (const int count : counts) {
    std::vector<TokenBatch> batches;
    for (int k = 0; k < count; ++k) batches.push_back(lab::grading::draw_tokens({4}, 4, 11, seed));
    StepCase c{.training = draw_pipeline(stages, batches, seed),
               .schedule = with_messages_beside(gpipe_plan({stages, m}), true)};
    c.training.leftover = 0.25F;
    cases.push_back(c);
    calls.push_back(
        {.scenario = "train_step",
         .inputs = c.inputs(),
         .name = fmt::format("{}, {} in the schedule", counted(count, "microbatch"), m)});
    for (Parcel& input : calls.back().inputs) input.set("refuses", 1);
  }
  judge_calls(calls, given(late_messages(seed)), [&](size_t k, const std::vector<Parcel>& ranks) {
    for (size_t rank = 0; rank < ranks.size(); ++rank) {
      const Parcel refusals = ranks[rank].part("refusals");
      const std::string how = refusals.text("refusal.0");
      const std::string why = fmt::format(
          "rank {}: {} not one or more whole waves of {}: train_step must throw lab::Error "
          "(lab::require) before anything is done, on every rank",
          rank, counts[k] == 1 ? "1 microbatch is" : fmt::format("{} microbatches are", counts[k]),
          m);
      if (ranks[rank].text("events.0").find("wave:") != std::string::npos)
        stop(why + "; it has run a wave first");
      if (!lab::grading::is_refusal(how))
        stop(fmt::format("{}; it {}", why, lab::grading::in_words(how)));
      if (ranks[rank].number("updates.0") > 0) stop(why + "; it has updated the weights first");
      const lab::grading::Numbers left = lab::grading::to_doubles(refusals.tensor("left.0"));
      if (std::ranges::any_of(left, [](double g) { return g != 0.25; }))
        stop(why + "; it has changed the gradients first");
      if (!operations_of(ranks[rank].part("traffic.0")).empty())
        stop(why + "; it has sent messages first");
    }
  });
}

TEST(Task6, RefusesWhatIsNoWholeWave) {
  expect_refusals(2, 3, {2, 4, 0, 7, 5, 1}, 70);
  expect_refusals(3, 2, {3, 0, 1}, 71);
}

TEST(Task6, OneStageRefusesAsWell) { expect_refusals(1, 2, {1, 0, 5}, 72); }

}  // namespace
}  // namespace lab05::task6
