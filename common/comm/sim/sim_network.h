// SimNetwork: the undelivered messages of a simulation, and its clock.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "common/comm/sim/scheduler.h"
#include "common/comm/sim/sim_clock.h"
#include "common/comm/sim/simulation.h"

namespace lab {

/// Thrown in a rank that is killed, or that would wait forever, to end it. Not a std::exception, so
/// that a program's own error handling does not catch it.
struct RankStop {
  std::string why;
};

/// One rank's side of a message or a collective. Its memory is read or written at the moment of
/// delivery.
struct SimSide {
  int rank = 0;  // of the world, as all ranks here
  bool done = false;
  bool broken = false;  // it waits for a rank that has ended: SimulationOptions::Death::breaks_off
  double end = 0;       // with a cost model, in seconds

  virtual ~SimSide() = default;
  /// The program no longer needs this side: its memory may be freed, and nobody is told any more.
  virtual void abandon() = 0;
};

struct SimPost final : SimSide {
  std::span<const float> source;
  std::span<float> target;
  std::vector<float> copy;  // of the source, if its memory may be freed before the delivery
  bool buffered = false;    // the message has left its sender
  bool discard = false;     // the target's memory has gone
  double posted = 0;        // with a cost model, in seconds
  int64_t order = 0;        // of a send: how many operations its rank had posted

  void abandon() override;
};

/// What one member contributes to a collective, and where its result goes.
struct SimPart {
  std::span<const float> input;
  std::span<float> output;
};

struct SimEntry final : SimSide {
  SimPart part;
  /// Called when the collective starts and when its result has arrived, with nanoseconds by the
  /// rank's clock if there is a cost model, else with 0 for "now".
  std::function<void(int64_t)> started;
  std::function<void(int64_t)> finished;
  std::vector<float> copy;       // of the input, if its memory may be freed before the delivery
  std::vector<float> discarded;  // where the result goes in that case

  void abandon() override;
};

/// Ranks call it only while they hold the scheduler's baton. Without a cost model, every operation
/// takes one step of simulated time; when all ranks wait, the clock advances to the next delivery.
/// With one, each rank has its own clock (SimClock).
class SimNetwork {
 public:
  SimNetwork(const SimulationOptions& options, Scheduler& scheduler);

  /// Messages with the same address meet in the order in which they were posted.
  struct Address {
    std::string group;
    int from = 0;
    int to = 0;
    uint64_t slot = 0;
    bool operator<(const Address& other) const {
      return std::tie(group, from, to, slot) <
             std::tie(other.group, other.from, other.to, other.slot);
    }
  };
  std::shared_ptr<SimPost> send(const Address& address, std::span<const float> data);
  std::shared_ptr<SimPost> recv(const Address& address, std::span<float> data);
  /// What members of a group do together.
  struct Collective {
    std::string group;
    uint32_t tag = 0;
    std::vector<int> members;  // ranks of the world
    int rounds = 1;            // how many steps of a ring it costs
    /// Gets the parts of all members; their outputs hold the numbers from before the collective.
    std::function<void(const std::vector<SimPart>&)> combine;
  };
  /// Enters a collective. It starts when all members have entered it and each of them has started
  /// those of this group that it entered before. `member`: this rank's number in the group.
  void enter(const Collective& call, int member, std::shared_ptr<SimEntry> entry);
  /// Returns when the message has been delivered (a buffered send: at once), or when this member of
  /// a collective has its result. Throws Error if it is broken.
  void wait(const SimSide& side);

  /// Advances the clock to the next delivery; false if there is none.
  bool deliver_next();
  /// Breaks off what waits for a rank that has ended, if Death::breaks_off; false if nothing does.
  bool break_off();
  /// Nothing can go on: throws RankStop in every rank that waits, now or from now on.
  void stop(const std::string& why);
  /// The rank has ended: what it had posted and not delivered is lost.
  void end(int rank) { rank_at(rank).gone = true; }
  bool killed(int rank) const { return ranks_[static_cast<size_t>(rank)].killed; }
  /// Steps of simulated time or, with a cost model, nanoseconds by this rank's clock; from 1: in
  /// records, 0 stands for "not yet".
  int64_t now(int rank) const;

  void advance_clock(int rank, double seconds);
  const CostModel* costs() const { return clock_ ? &clock_->costs() : nullptr; }
  /// Null without a cost model.
  const SimClock* clock() const { return clock_ ? &*clock_ : nullptr; }

 private:
  struct Rank {
    int operations = 0;
    bool killed = false;
    bool gone = false;
  };
  struct Channel {
    std::deque<std::shared_ptr<SimPost>> sends;
    std::deque<std::shared_ptr<SimPost>> recvs;
  };
  struct Gathering {
    Collective call;
    std::vector<std::shared_ptr<SimEntry>> entries;  // per member
    std::vector<std::vector<float>> results;         // per member, once they are combined
    size_t arrived = 0;
    double posted = 0;  // when the last one arrived: with a cost model
  };
  using Member = std::pair<std::string, int>;  // of a group

  Rank& rank_at(int rank) { return ranks_[static_cast<size_t>(rank)]; }
  void begin_operation(int rank);
  void check_alive(int rank) const;
  bool breaks_off() const { return options_.death && options_.death->breaks_off; }
  bool gone(int rank) const { return ranks_[static_cast<size_t>(rank)].gone; }
  void match(const Address& address);
  void deliver(SimPost& send, SimPost& recv, double end) const;
  void start_next_of(const std::string& group, size_t members);
  void start(const std::shared_ptr<Gathering>& gathering);
  void deliver(Gathering& gathering, size_t member, double end);
  void deliver_later(std::function<void()> delivery, int64_t delay);
  int64_t delay();
  int64_t delay(const Address& address);
  void deliver_due();

  const SimulationOptions options_;
  Scheduler& scheduler_;
  std::mt19937_64 random_;
  std::optional<SimClock> clock_;
  int64_t now_ = 1;
  std::string stopped_;  // why; empty: running
  std::vector<Rank> ranks_;
  std::map<Address, Channel> channels_;
  std::map<std::pair<std::string, uint32_t>, std::shared_ptr<Gathering>> gatherings_;  // by tag
  std::map<Member, std::deque<std::shared_ptr<Gathering>>> queues_;  // entered, not started
  std::map<Member, int64_t> last_due_;  // delivery, in steps of simulated time
  std::multimap<int64_t, std::function<void()>> deliveries_;  // by the step at which they are due
};

}  // namespace lab
