// Schedules that an implementation returned, and what is judged alike in all of them.
#pragma once

#include <string>
#include <vector>

#include "common/grading/verdict.h"
#include "common/pipeline/schedule.h"
#include "common/pipeline/timeline.h"
#include "tests/labs/05_microbatches/verdict_plans.h"

namespace lab05 {

/// A schedule, and how to call it: "one_f_one_b(3, 4)".
struct Answer {
  std::string name;
  Size size;
  lab::Schedule schedule;
};

/// What the implementation's gpipe or one_f_one_b returns for each of the sizes.
std::vector<Answer> ask_for_plans(const std::string& function, const std::vector<Size>& sizes);

/// A plan, and how to call it.
struct Question {
  std::string name;  // "1F1B with 3 stages and 4 microbatches"
  lab::Schedule plan;
};
Question gpipe_question(const Size& size);
Question one_f_one_b_question(const Size& size);
Question random_question(const Size& size, uint64_t seed);

/// What with_blocking_messages or with_messages makes of each of the plans.
std::vector<Answer> ask_for_programs(const std::string& function,
                                     const std::vector<Question>& questions);

/// First line: the answer's name and `what`; then the schedule, unless it is very large.
[[noreturn]] void stop(const Answer& answer, const std::string& what);

// Each ends the test as failed unless it is as it should be:

/// A plan of the right size, which can be done to its end.
void expect_plan(const Answer& answer);

/// That stage `stage` keeps at most this many microbatches at once: `limit(stage)`.
void expect_peaks(const Answer& answer, const std::function<int(int)>& limit);

/// In simulated time, for several costs of the passes, that a plan takes as long as the theory says
/// of equal stages.
void expect_ideal_time(const Answer& answer);

}  // namespace lab05
