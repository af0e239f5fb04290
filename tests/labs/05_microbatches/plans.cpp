// Makes schedules, and asks an implementation for others.
#include "tests/labs/05_microbatches/plans.h"

#include <fmt/format.h>

#include <algorithm>
#include <random>
#include <regex>

#include "common/error.h"
#include "common/format.h"
#include "common/pipeline/validate.h"

namespace lab05 {

using lab::Action;
using lab::ActionKind;
using lab::ActionList;
using lab::counted;
using lab::Schedule;
using lab::grading::Parcel;

namespace {

Schedule empty_schedule(const Size& size) {
  return {size.microbatches, std::vector<ActionList>(static_cast<size_t>(size.stages))};
}

/// A pipeline that does whatever is possible, one thing after the other. Its state is how far each
/// microbatch has come: forward on stage 0, sent to stage 1, forward there...
class RandomWalk {
 public:
  RandomWalk(const Size& size, uint64_t seed)
      : size_(size),
        generator_(seed),
        schedule_(empty_schedule(size)),
        progress_(static_cast<size_t>(size.microbatches), 0) {}

  Schedule run() {
    while (true) {
      std::vector<int> open;
      for (int k = 0; k < size_.microbatches; ++k)
        if (progress_[static_cast<size_t>(k)] < events()) open.push_back(k);
      if (open.empty()) return schedule_;
      advance(open[generator_() % open.size()]);
    }
  }

 private:
  /// Of one microbatch: passes and messages on the way down, and on the way up.
  int events() const { return 2 * (2 * size_.stages - 1); }

  void advance(int k) {
    const int event = progress_[static_cast<size_t>(k)]++;
    const int half = 2 * size_.stages - 1;
    const bool down = event < half;
    const int step = down ? event : event - half;  // 0: a pass, 1: a message, 2: a pass ...
    const int from = down ? step / 2 : size_.stages - 1 - step / 2;
    if (step % 2 == 0) return add(from, down ? ActionKind::kForward : ActionKind::kBackward, k);
    add(from, down ? ActionKind::kSendActivation : ActionKind::kSendGradient, k);
    add(down ? from + 1 : from - 1, down ? ActionKind::kRecvActivation : ActionKind::kRecvGradient,
        k);
  }

  void add(int stage, ActionKind kind, int k) {
    schedule_.stages[static_cast<size_t>(stage)].push_back({kind, k});
  }

  Size size_;
  std::mt19937_64 generator_;
  Schedule schedule_;
  std::vector<int> progress_;
};

/// What the implementation returned, as the rank program packs it.
Schedule answer_in(const Parcel& result, const std::string& name) {
  if (const std::string& untold = result.text("untold"); !untold.empty())
    lab::grading::stop(fmt::format("{}: {}", name, untold));
  Schedule schedule = lab::schedule_from_text(result.text("schedule"), name);
  schedule.microbatches = static_cast<int>(result.number("microbatches"));
  return schedule;
}

}  // namespace

std::vector<Size> all_sizes() {
  constexpr int kMostStages = 8;
  constexpr int kMostMicrobatches = 40;
  std::vector<Size> sizes;
  for (int stages = 1; stages <= kMostStages; ++stages)
    for (int microbatches = 1; microbatches <= kMostMicrobatches; ++microbatches)
      sizes.push_back({stages, microbatches});
  std::mt19937_64 generator(lab::grading::scenario_seed());
  for (size_t i = sizes.size(); i > 1; --i) std::swap(sizes[i - 1], sizes[generator() % i]);
  const std::vector<Size> first = {{3, 4}, {4, 2}, {2, 2}, {1, 3}};
  sizes.insert(sizes.begin(), first.begin(), first.end());
  sizes.insert(sizes.end(), {{8, 32}, {12, 7}, {33, 64}, {140, 3}, {2, 300}});
  sizes.insert(sizes.end(), first.begin(), first.end());
  return sizes;
}

Schedule gpipe_plan(const Size& size) {
  Schedule plan = empty_schedule(size);
  for (ActionList& list : plan.stages)
    for (const ActionKind kind : {ActionKind::kForward, ActionKind::kBackward})
      for (int k = 0; k < size.microbatches; ++k) list.push_back({kind, k});
  return plan;
}

Schedule one_f_one_b_plan(const Size& size) {
  Schedule plan = empty_schedule(size);
  for (int stage = 0; stage < size.stages; ++stage) {
    ActionList& list = plan.stages[static_cast<size_t>(stage)];
    // Backward k follows forward k + warm_up, or the one before it when those are used up.
    const int warm_up = size.stages - 1 - stage;
    for (int i = 0; i < size.microbatches + warm_up; ++i) {
      if (i < size.microbatches) list.push_back({ActionKind::kForward, i});
      if (i >= warm_up) list.push_back({ActionKind::kBackward, i - warm_up});
    }
  }
  return plan;
}

Schedule random_plan(const Size& size, uint64_t seed) {
  Schedule plan = random_blocking_program(size, seed);
  for (ActionList& list : plan.stages)
    std::erase_if(list, [](const Action& action) { return is_message(action.kind); });
  return plan;
}

Schedule random_blocking_program(const Size& size, uint64_t seed) {
  return RandomWalk(size, seed).run();
}

Schedule random_program(const Size& size, uint64_t seed) {
  std::mt19937_64 generator(seed);
  Schedule program = random_blocking_program(size, generator());
  for (ActionList& list : program.stages)
    for (size_t i = 0; i < list.size(); ++i) {
      if (!is_message(list[i].kind) || generator() % 2 == 0) continue;
      list[i].posted = true;
      // Posting earlier never hurts. A send stays after the pass that makes its data.
      const ActionKind pass = list[i].kind == ActionKind::kSendActivation ? ActionKind::kForward
                                                                          : ActionKind::kBackward;
      const auto made = std::ranges::find(list, Action{pass, list[i].microbatch}) - list.begin();
      const size_t first = is_send(list[i].kind) ? static_cast<size_t>(made) + 1 : 0;
      const auto place = static_cast<std::ptrdiff_t>(first + generator() % (i - first + 1));
      const auto here = list.begin() + static_cast<std::ptrdiff_t>(i);
      std::rotate(list.begin() + place, here, here + 1);
    }
  lab::require_valid(program, "a random program of the tests");
  return program;
}

Schedule with_early_recvs(Schedule program) {
  for (ActionList& list : program.stages) {
    std::stable_partition(list.begin(), list.end(), is_recv);
    for (Action& action : list) action.posted = is_message(action.kind);
  }
  return program;
}

Schedule program_from(const std::string& text) {
  const Schedule program = lab::schedule_from_text(text, "a program of the tests");
  lab::require_valid(program, "a program of the tests");
  return program;
}

Action reader_of(const Action& recv) {
  return {recv.kind == ActionKind::kRecvActivation ? ActionKind::kForward : ActionKind::kBackward,
          recv.microbatch};
}

std::string in_words(const ActionList& actions) {
  std::string words;
  for (const Action& action : actions) words += (words.empty() ? "" : " ") + to_string(action);
  return words;
}

std::string in_words(const Schedule& schedule, size_t first) {
  constexpr size_t kShown = 250;  // actions
  size_t actions = 0;
  std::string words;
  for (size_t s = 0; s < schedule.stages.size(); ++s) {
    actions += schedule.stages[s].size();
    const std::string list = fmt::format("\n  stage {}: {}", s, in_words(schedule.stages[s]));
    words = s == first ? list + words : words + list;
  }
  return actions <= kShown ? words : "";
}

Question about_size(const std::string& function, const Size& size) {
  return {fmt::format("{}({}, {})", function, size.stages, size.microbatches), size};
}

Question about_plan(const std::string& function, const std::string& kind, const Size& size,
                    uint64_t seed) {
  const auto [p, m] = size;
  return {fmt::format("{} of {} with {} and {}", function,
                      kind == "another order" ? "a schedule in another order" : kind,
                      counted(p, "stage"), counted(m, "microbatch")),
          size,
          kind == "GPipe"  ? gpipe_plan(size)
          : kind == "1F1B" ? one_f_one_b_plan(size)
                           : random_plan(size, seed)};
}

void judge_schedules(const std::string& function, const std::vector<Question>& questions,
                     const JudgeSchedule& judge, const std::set<std::string>& given) {
  std::vector<lab::grading::Call> calls;
  for (const Question& question : questions) {
    Parcel input;
    input.set_text("function", function);
    input.set("stages", question.size.stages);
    input.set("microbatches", question.size.microbatches);
    if (!question.plan.stages.empty()) input.set_text("plan", to_text(question.plan));
    calls.push_back({.scenario = "schedule", .inputs = {input}, .name = question.name});
  }
  judge_calls(calls, {.network = lab::grading::Network::kNone, .given = given},
              [&](size_t k, const std::vector<Parcel>& ranks) {
                judge(questions[k], answer_in(ranks[0], questions[k].name));
              });
}

void stop(const Question& question, const Schedule& answer, const std::string& what) {
  std::smatch named;  // its list comes first: not all may be shown
  const bool found = std::regex_search(what, named, std::regex("[Ss]tage (\\d+)"));
  const size_t first = found ? std::stoul(named[1]) : 0;
  lab::grading::stop(fmt::format("{}: {}{}", question.name, what, in_words(answer, first)));
}

void expect_size(const Question& question, const Schedule& answer) {
  const auto [p, m] = question.size;
  if (answer.stage_count() != p)
    stop(question, answer,
         fmt::format("it should have a list for each of {} stages, and has {}", p,
                     answer.stage_count()));
  if (answer.microbatches != m)
    stop(question, answer,
         fmt::format("Schedule::microbatches is {}, it should be {}", answer.microbatches, m));
}

void expect_passes(const Question& question, const Schedule& answer) {
  expect_size(question, answer);
  for (size_t s = 0; s < answer.stages.size(); ++s) {
    ActionList passes = answer.stages[s];
    std::erase_if(passes, [](const Action& action) { return is_message(action.kind); });
    const ActionList& plan = question.plan.stages[s];
    const auto [got, wanted] = std::ranges::mismatch(passes, plan);
    if (got == passes.end() && wanted == plan.end()) continue;
    stop(question, answer,
         fmt::format("the passes of stage {} are not those of the schedule: {} where {} should be. "
                     "Only add messages; leave the passes in their order",
                     s, got == passes.end() ? "nothing" : to_string(*got),
                     wanted == plan.end() ? "nothing" : to_string(*wanted)));
  }
  if (question.size.stages > 1 && !answer.has_messages())
    stop(question, answer, "there is no message in it: this is the schedule as it was passed in");
}

void expect_plan(const Question& question, const Schedule& answer, const std::string& hint) {
  expect_size(question, answer);
  for (size_t s = 0; s < answer.stages.size(); ++s)
    for (const Action& action : answer.stages[s])
      if (is_message(action.kind))
        stop(question, answer,
             fmt::format("stage {} has the message {}: a schedule has forwards and backwards only; "
                         "messages come in tasks 3 and 5",
                         s, to_string(action)));
  if (const auto fault = lab::validate(answer)) {
    const std::string& message = fault->message;
    const size_t end = std::min(message.find('\n'), message.size());
    stop(question, answer, message.substr(0, end) + hint + message.substr(end));
  }
}

}  // namespace lab05
