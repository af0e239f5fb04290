// Workers of different speed around a parameter server, in simulated time: a queue of events, no
// threads. The same seed gives the same run.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <vector>

#include "common/comm/cost_model.h"
#include "common/comm/server/messages.h"
#include "common/comm/server/serving.h"

namespace lab {

/// A worker's answer to a reply of the server: its next request (lab 11's on_reply).
using WorkerLogic = std::function<Request(const Reply& reply)>;

struct SimulatedWorker {
  int number = 0;  // two workers may share one if the second starts after the first was killed
  double compute_s = 1;
  double begins_at = 0;
  double killed_at = std::numeric_limits<double>::infinity();
};

struct WorkerSimulation {
  std::vector<SimulatedWorker> workers;
  LinkCost link = {};  // between a worker and the server
  double bytes = 0;    // of the weights, and of a gradient
  double jitter = 0;   // a computation takes up to this fraction longer, drawn from the seed
  double late_s = 0;   // a message arrives up to this much later: it may be overtaken
  double lost = 0;     // the probability that a message, either way, is lost
  double patience_s = std::numeric_limits<double>::infinity();  // then a worker asks again
  double notice_s = 1;      // from a worker's death until the server is told
  double false_alarms = 0;  // the probability, at each push sent, that the server is told that this
                            // worker is gone although it is not
  uint64_t seed = 1;
  int64_t most_events = 1'000'000;  // more: something never ends
};

struct SimulatedEvent {
  enum class Kind {
    kJoined,
    kWork,     // a ticket has arrived at the worker, which begins to compute
    kPushed,   // it has computed, and sends
    kTaken,    // the server's answer has arrived
    kWaiting,  // it has computed nothing since its last push, and asks for work
    kKilled,
    kStopped,  // there is no more work
  };
  double time = 0;
  Kind kind = Kind::kJoined;
  int worker = 0;
  Ticket ticket = {};  // of kWork
};

struct WorkerSimulationReport {
  double seconds = 0;  // when the server finished; if it did not, when the last event was
  bool finished = false;
  std::vector<SimulatedEvent> events;
};

/// Calls the hooks and each worker's logic (made when the worker begins) in the order of simulated
/// time. The server sends one message at a time and receives one at a time. Computing
/// takes time, deciding none. Ends when the server has finished and no worker waits for it, or when
/// no worker is left. Throws Error after `most_events`.
WorkerSimulationReport simulate_workers(const WorkerSimulation& options, ServerHooks server,
                                        const std::function<WorkerLogic(int worker)>& make_worker);

}  // namespace lab
