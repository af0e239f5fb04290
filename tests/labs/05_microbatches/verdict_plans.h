// Schedules that the verdict makes itself: what is right, and what must be executed.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/pipeline/schedule.h"

namespace lab05 {

/// A number of stages and of microbatches.
struct Size {
  int stages = 1;
  int microbatches = 1;
};

/// Up to 6 stages and 8 microbatches, the small ones first, and a few large ones.
std::vector<Size> grid();

lab::Schedule gpipe_plan(const Size& size);
lab::Schedule one_f_one_b_plan(const Size& size);

/// Passes in any order that is possible, backwards before later forwards and in any order.
lab::Schedule random_plan(const Size& size, uint64_t seed);
/// Such a plan with blocking messages in an order in which both sides meet. Some are far from the
/// pass that makes or reads them.
lab::Schedule random_blocking_program(const Size& size, uint64_t seed);
/// The same with some messages posted, and earlier than they need be.
lab::Schedule random_program(const Size& size, uint64_t seed);

/// The plan with its messages around every pass: recvs blocking, sends blocking or posted.
lab::Schedule with_all_messages(const lab::Schedule& plan, bool posted_sends);

/// All messages blocking, if that is possible: the order stays.
lab::Schedule unposted(lab::Schedule program);
/// What remains without the messages.
lab::Schedule passes_of(const lab::Schedule& program);

/// The most microbatches in flight that a list of actions implies.
int most_in_flight(const lab::ActionList& actions);

/// "F0 F1 B0 B1".
std::string in_words(const lab::ActionList& actions);

}  // namespace lab05
