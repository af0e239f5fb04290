// Asking for schedules, and judging them as data.
#include "tests/labs/05_microbatches/verdict_schedules.h"

#include <fmt/format.h>

#include <cmath>

#include "common/pipeline/simulate.h"
#include "common/pipeline/validate.h"
#include "common/tensor/error.h"

namespace lab05 {

using lab::Action;
using lab::Schedule;
using lab::grading::Parcel;

namespace {

constexpr double kExact = 1e-9;  // simulated times are sums of a few numbers

/// Ends the test if what was returned is no schedule at all.
Schedule schedule_of(const Parcel& result, size_t number, const std::string& name) {
  try {
    Schedule schedule =
        lab::schedule_from_text(result.text(fmt::format("schedule.{}", number)), name);
    schedule.microbatches = static_cast<int>(result.number(fmt::format("microbatches.{}", number)));
    return schedule;
  } catch (const lab::Error& error) {
    lab::grading::stop(error.what());
  }
}

Question question(const std::string& kind, const Size& size, const Schedule& plan) {
  return {fmt::format("{} with {} stage{} and {} microbatch{}", kind, size.stages,
                      size.stages == 1 ? "" : "s", size.microbatches,
                      size.microbatches == 1 ? "" : "es"),
          plan};
}

}  // namespace

std::vector<Answer> ask_for_plans(const std::string& function, const std::vector<Size>& sizes) {
  Parcel input;
  input.set_text("function", function);
  std::vector<double> stages;
  std::vector<double> microbatches;
  for (const Size& size : sizes) {
    stages.push_back(size.stages);
    microbatches.push_back(size.microbatches);
  }
  input.set("stages", stages);
  input.set("microbatches", microbatches);
  const Parcel result = lab::grading::student("plans", input);
  std::vector<Answer> answers;
  for (const Size& size : sizes) {
    const std::string name = fmt::format("{}({}, {})", function, size.stages, size.microbatches);
    answers.push_back({name, size, schedule_of(result, answers.size(), name)});
  }
  return answers;
}

Question gpipe_question(const Size& size) { return question("GPipe", size, gpipe_plan(size)); }

Question one_f_one_b_question(const Size& size) {
  return question("1F1B", size, one_f_one_b_plan(size));
}

Question random_question(const Size& size, uint64_t seed) {
  return question("a plan in another order,", size, random_plan(size, seed));
}

std::vector<Answer> ask_for_programs(const std::string& function,
                                     const std::vector<Question>& questions) {
  Parcel input;
  input.set_text("function", function);
  input.set("plans", static_cast<double>(questions.size()));
  for (size_t i = 0; i < questions.size(); ++i)
    input.set_text(fmt::format("plan.{}", i), to_text(questions[i].plan));
  const Parcel result = lab::grading::student("programs", input);
  std::vector<Answer> answers;
  for (const Question& asked : questions)
    answers.push_back({fmt::format("{} of {}", function, asked.name),
                       {asked.plan.stage_count(), asked.plan.microbatches},
                       schedule_of(result, answers.size(), function)});
  return answers;
}

void stop(const Answer& answer, const std::string& what) {
  constexpr int kShown = 60;  // actions in all
  std::string message = fmt::format("{}: {}", answer.name, what);
  if (answer.size.stages * answer.size.microbatches <= kShown)
    for (int s = 0; s < answer.schedule.stage_count(); ++s)
      message += fmt::format("\n  stage {}: {}", s,
                             in_words(answer.schedule.stages[static_cast<size_t>(s)]));
  lab::grading::stop(message);
}

void expect_plan(const Answer& answer) {
  const Schedule& plan = answer.schedule;
  if (plan.stage_count() != answer.size.stages)
    stop(answer, fmt::format("it has {} stages, there should be {}", plan.stage_count(),
                             answer.size.stages));
  if (plan.microbatches != answer.size.microbatches)
    stop(answer, fmt::format("Schedule::microbatches is {}, it should be {}", plan.microbatches,
                             answer.size.microbatches));
  for (size_t s = 0; s < plan.stages.size(); ++s)
    for (const Action& action : plan.stages[s])
      if (is_message(action.kind))
        stop(answer, fmt::format("stage {} has the message {}: a plan has forwards and backwards "
                                 "only; messages come in tasks 3 and 5",
                                 s, to_string(action)));
  if (const auto fault = lab::validate(plan)) stop(answer, fault->message);
}

void expect_peaks(const Answer& answer, const std::function<int(int)>& limit) {
  if (const auto fault = lab::validate(answer.schedule)) stop(answer, fault->message);
  const lab::Timeline timeline = lab::simulate(answer.schedule);
  for (int s = 0; s < answer.schedule.stage_count(); ++s)
    if (const int peak = lab::peak_in_flight(timeline, s); peak != limit(s))
      stop(answer, fmt::format("stage {} has up to {} microbatches in flight, it should be {}", s,
                               peak, limit(s)));
}

void expect_ideal_time(const Answer& answer) {
  if (const auto fault = lab::validate(answer.schedule)) stop(answer, fault->message);
  const auto [p, m] = answer.size;
  for (const auto& [forward, backward] :
       {std::pair(1.0, 2.0), std::pair(1.0, 1.0), std::pair(2.0, 3.5), std::pair(3.0, 0.5)}) {
    const lab::Timeline timeline =
        lab::simulate(answer.schedule, {{.forward = forward, .backward = backward, .message = 0}});
    const double ideal = (m + p - 1) * (forward + backward);
    if (std::abs(lab::makespan(timeline) - ideal) > kExact * ideal)
      stop(answer,
           fmt::format("it takes {} units of time, it should take (m + p - 1) (f + b) = {} (a "
                       "forward takes {}, a backward {})",
                       lab::makespan(timeline), ideal, forward, backward));
    const double bubble = lab::ideal_bubble(p, m);
    if (std::abs(lab::idle_share(timeline) - bubble) > kExact)
      stop(answer, fmt::format("its bubble is {:.4f}, it should be (p - 1) / (m + p - 1) = {:.4f}",
                               lab::idle_share(timeline), bubble));
  }
}

}  // namespace lab05
