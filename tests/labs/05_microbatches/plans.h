// Schedules that the verdict makes, and those that an implementation has returned.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "common/pipeline/schedule.h"
#include "tests/grading/verdict.h"
#include "tests/unit/pipeline_plans.h"

namespace lab05 {

/// A number of stages and of microbatches.
struct Size {
  int stages = 1;
  int microbatches = 1;
};

/// 1 to 8 stages with 1 to 40 microbatches, in no particular order, and a few larger ones. So many
/// that a schedule kept from another call shows, however it is looked up. The most instructive come
/// first, and again at the end.
std::vector<Size> all_sizes();

lab::Schedule gpipe_plan(const Size& size);
lab::Schedule one_f_one_b_plan(const Size& size);
/// Passes in any possible order: backwards before later forwards, and in any order among
/// themselves.
lab::Schedule random_plan(const Size& size, uint64_t seed);

/// Such a schedule with blocking messages, in an order in which both sides meet. Some messages are
/// far from the pass that makes or reads them.
lab::Schedule random_blocking_program(const Size& size, uint64_t seed);
/// The same with some messages posted, and earlier than necessary.
lab::Schedule random_program(const Size& size, uint64_t seed);
/// All messages posted, the recvs at the beginning.
lab::Schedule with_early_recvs(lab::Schedule program);
/// A valid program, or Error.
lab::Schedule program_from(const std::string& text);

inline bool is_recv(const lab::Action& action) {
  return is_message(action.kind) && !is_send(action.kind);
}
/// The pass that reads what a recv brings.
lab::Action reader_of(const lab::Action& recv);

/// "F0 F1 B0 B1".
std::string in_words(const lab::ActionList& actions);
/// A line per stage, that of `first` in front; nothing if it is very large.
std::string in_words(const lab::Schedule& schedule, size_t first);

/// What a function that makes schedules is asked, and what it answered.
struct Question {
  std::string name;  // "one_f_one_b(3, 4)", "with_messages of GPipe with ..."
  Size size;
  lab::Schedule plan = {};  // of a function that takes one
};
Question about_size(const std::string& function, const Size& size);
/// `kind`: "GPipe", "1F1B", or "another order": drawn from the seed.
Question about_plan(const std::string& function, const std::string& kind, const Size& size,
                    uint64_t seed = 0);

/// Asks `function` all of them one after the other in one process, and judges each answer.
using JudgeSchedule = std::function<void(const Question&, const lab::Schedule& answer)>;
void judge_schedules(const std::string& function, const std::vector<Question>& questions,
                     const JudgeSchedule& judge, const std::set<std::string>& given = {});

/// Ends the test as failed. First line: the question's name and `what`; then the schedule.
[[noreturn]] void stop(const Question& question, const lab::Schedule& answer,
                       const std::string& what);
/// Unless it is a schedule of the requested size, without messages, that can be finished.
/// `hint(fault)` is added to what lab::validate says.
void expect_plan(const Question& question, const lab::Schedule& answer, const std::string& hint);
void expect_size(const Question& question, const lab::Schedule& answer);
/// Size, the passes of question.plan, and some message.
void expect_passes(const Question& question, const lab::Schedule& answer);

}  // namespace lab05
