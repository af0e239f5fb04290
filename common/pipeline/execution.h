// Running a schedule in simulated time: what `validate` and `simulate` have in common.
#pragma once

#include <deque>
#include <string>
#include <vector>

#include "common/pipeline/schedule.h"
#include "common/pipeline/simulate.h"
#include "common/pipeline/timeline.h"
#include "common/pipeline/validate.h"

namespace lab {

/// What is wrong with a stage's list, taken alone, as in `validate`; empty if nothing is.
/// `program`: it must have messages.
std::string check_stage(const Schedule& schedule, int stage, bool program);

/// Executes a schedule; each stage's list, taken alone, must be complete (check_stage). Stages
/// depend on each other only through messages that they wait for one at a time, so the order in
/// which they are advanced here affects neither times nor deadlocks.
class Execution {
 public:
  /// `costs`: one per stage. Both must outlive the execution.
  Execution(const Schedule& schedule, const std::vector<StageCosts>& costs);

  /// Advances every stage as far as it can. Returns whether all have finished their lists.
  bool run();

  /// After `run` has returned false: stages that wait for each other, the lowest of them first.
  std::vector<BlockedStage> circle() const;

  /// What the stages did. Empties the execution.
  Timeline take_timeline();

 private:
  static constexpr int64_t kNoMessage = -1;
  static constexpr double kNotYet = -1;

  /// A message across the boundary between two neighbours: when each side began it, and where its
  /// span is in the rank's list.
  struct Message {
    double sent = kNotYet;
    double received = kNotYet;
    double arrival = kNotYet;
    size_t send_span = 0;
    size_t recv_span = 0;
  };

  struct Stage {
    size_t next = 0;          // in its list
    size_t next_to_wait = 0;  // at the end of the list: for its posted sends
    double now = 0;
    bool finished = false;
    int64_t waits_for = kNoMessage;
  };

  bool step(int stage);
  bool step_message(int stage, const Action& action);
  bool step_pass(int stage, const Action& action);
  bool finish(int stage);

  int64_t message_of(int stage, const Action& message) const;
  int peer_of(int stage, int64_t message) const;
  void begin(int stage, int64_t message, bool send);
  void match(int64_t message, int receiver);
  bool wait(int stage, int64_t message, SpanKind kind);
  BlockedStage blocked(int stage) const;

  const Schedule& schedule_;
  const std::vector<StageCosts>& costs_;
  const bool is_plan_;
  std::vector<Message> messages_;
  std::vector<Stage> stages_;
  std::deque<int> ready_;
  Timeline timeline_;
};

}  // namespace lab
