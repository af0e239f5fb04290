// What happened in a training step, from the flight records of all ranks.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/comm/diagnosis/flight_recorder.h"
#include "common/comm/sim/simulation.h"
#include "common/model/llama_stage.h"
#include "common/model/loss_function.h"
#include "common/optim/optimizer.h"
#include "common/pipeline/timeline.h"
#include "common/run/launch/job.h"

namespace lab {

/// From now on, the stage's forwards and backwards are recorded.
void record_passes(LlamaStage& stage, FlightRecorder& recorder);

/// The same loss, with every call recorded.
LossFunction recorded_loss(LossFunction loss, FlightRecorder& recorder);

/// The same optimizer, with its updates recorded.
class RecordedOptimizer final : public Optimizer {
 public:
  /// Both must outlive this object.
  RecordedOptimizer(Optimizer& optimizer, FlightRecorder& recorder);
  void step(const Tensor& parameters, const Tensor& gradients, float learning_rate) override;
  std::vector<State> state() const override { return optimizer_.state(); }

 private:
  Optimizer& optimizer_;
  FlightRecorder& recorder_;
};

/// A stretch of time by this machine's CLOCK_MONOTONIC, in ns.
struct TimeWindow {
  int64_t begin_ns = 0;
  int64_t end_ns = 0;
};

/// What one rank did in a window: when everything that began in it began and ended, in seconds from
/// the beginning of the window. Waiting is a span; a message that was posted and not waited for is
/// only among the messages. So is a posted collective while it travels; its number in the window
/// takes the place of a microbatch, as the tag does for a message without one. `groups`: those of
/// the same record; a collective of another group has no members in the timeline.
RankTimeline rank_timeline(const std::vector<OpRecord>& history, const TimeWindow& window,
                           const std::vector<GroupRecord>& groups = {});

/// What a rank recorded in a window; `name`: the rank's, in the timeline.
struct RecordedWindow {
  std::string name;
  TimeWindow window;
  std::vector<OpRecord> history;
  std::vector<GroupRecord> groups;
};

/// The timelines of all ranks. By one clock, time begins with the earliest window; else each rank's
/// begins with its own.
Timeline timeline_of(const std::vector<RecordedWindow>& ranks, bool one_clock);

/// All ranks of a simulation with a cost model, from `begin_ns` by their clocks, which begin at 1.
Timeline simulated_timeline(const SimulationReport& report, int64_t begin_ns = 1);

/// The timelines of all ranks on rank 0, nothing on the others. All ranks call it. Ranks of one
/// machine have one clock; the clocks of several machines need not agree. In that case, all windows
/// are assumed to begin at the same moment, as they nearly do right after a collective. `name`:
/// this rank's name in the timeline.
std::optional<Timeline> gather_timeline(Job& job, const std::string& name,
                                        const TimeWindow& window);

}  // namespace lab
