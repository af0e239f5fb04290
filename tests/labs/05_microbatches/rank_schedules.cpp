// Schedules as data.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "labs/05_microbatches/microbatches.h"
#include "tests/labs/05_microbatches/rank_scenarios.h"

namespace lab05 {
namespace {

using lab::Schedule;
using lab::grading::Parcel;

/// Its text, and apart from that how many microbatches it claims to have: text that contradicts
/// itself could not be read, and what is wrong with it is for the verdict to say.
void set_schedule(Parcel& result, size_t number, Schedule schedule) {
  result.set(fmt::format("microbatches.{}", number), schedule.microbatches);
  for (const lab::ActionList& list : schedule.stages)
    for (const lab::Action& action : list)
      schedule.microbatches = std::max(schedule.microbatches, action.microbatch + 1);
  schedule.microbatches = std::max(schedule.microbatches, 0);
  result.set_text(fmt::format("schedule.{}", number), to_text(schedule));
}

}  // namespace

Parcel run_plans(const Parcel& input) {
  const std::map<std::string, Schedule (*)(int, int)> functions = {{"gpipe", gpipe},
                                                                   {"one_f_one_b", one_f_one_b}};
  const auto function = functions.at(input.text("function"));
  const std::vector<double> stages = input.numbers("stages");
  const std::vector<double> microbatches = input.numbers("microbatches");
  Parcel result;
  for (size_t i = 0; i < stages.size(); ++i)
    set_schedule(result, i,
                 function(static_cast<int>(stages[i]), static_cast<int>(microbatches[i])));
  return result;
}

Parcel run_programs(const Parcel& input) {
  const bool blocking = input.text("function") == "with_blocking_messages";
  Parcel result;
  for (size_t i = 0; i < static_cast<size_t>(input.number("plans")); ++i) {
    const Schedule plan = lab::schedule_from_text(input.text(fmt::format("plan.{}", i)), "plan");
    set_schedule(result, i, blocking ? with_blocking_messages(plan) : with_messages(plan));
  }
  return result;
}

}  // namespace lab05
