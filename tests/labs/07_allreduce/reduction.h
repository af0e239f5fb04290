// Calls of the functions that reduce: their inputs, and what each rank must have and send.
#pragma once

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/comm/cost_model.h"
#include "tests/grading/verdict.h"

namespace lab07 {

/// One call on all ranks of a job.
struct Case {
  std::string function;  // of the contract
  int64_t elements = 10;
  lab::ReduceOp op = lab::ReduceOp::kSum;
  /// Every element of rank r is 8^r: a wrong sum tells whose numbers are in it. Else random.
  bool telling = false;
  /// Of the world: ranks with the same color call the function in a group of their own, which
  /// numbers them from the highest to the lowest; those of color 0 do not call it. Empty: all in
  /// the world.
  std::vector<int> colors = {};
  int ranks_per_host = 1;  // of hierarchical_all_reduce
  int other_hosts = 0;     // ranks in each of other Hosts, made after those that are used; 0: none
  uint64_t seed = 1;
};

/// Of the rank program: the scenario that makes the call, and what each rank passes.
std::string scenario_of(const Case& c);
std::vector<lab::grading::Parcel> inputs_of(const Case& c, int ranks);

/// What a rank sends: to whom (of its group), how much.
struct Message {
  int to = 0;
  uint64_t bytes = 0;
  bool operator==(const Message&) const = default;
};

/// What the contract says about rank `rank` of `ranks`.
struct Promise {
  std::vector<Message> sends;  // in the order of doubling_all_reduce; of the others in any
  uint64_t scratch = 0;        // bytes
  int additions = 0;           // calls of combine
};
Promise promise_of(const Case& c, int rank, int ranks);

/// How long the call may take.
double seconds_of(const Case& c, int ranks, const lab::CostModel& costs);

/// Elements [first, second) are chunk k of n.
std::pair<int64_t, int64_t> chunk_of(int64_t elements, int k, int n);

/// Numbers, bits, fence, groups, kinds of operations, messages, additions; of large tensors
/// scratch, if the ranks are simulated; time if the simulation has costs. All cases have the same
/// number of ranks.
void expect_cases(const std::vector<Case>& cases, int ranks,
                  const lab::grading::JobOptions& options);

/// Some 20 calls with 1 to 8 ranks, in simulations that differ: elements from 0 to hundreds,
/// all operations, messages late, links slow.
void expect_any_cases(const std::vector<std::string>& functions, uint64_t seed,
                      const std::set<std::string>& given = {});

/// A network whose times are whole nanoseconds, for tensors with `ranks` elements or a multiple.
lab::grading::JobOptions timed(int ranks_per_host = 0, std::set<std::string> given = {});

/// Rank `ranks` - 1 dies at each of these operations (from 1), or passes fewer elements than the
/// others: the job must end, explained, and no rank may return without the sum.
void expect_explained_ends(Case c, int ranks, const std::vector<int>& operations,
                           const std::set<std::string>& given = {});

/// Each rank dies at each of its operations, in turn, and whoever waits for it gets an exception:
/// no rank may return without the sum.
void expect_errors_to_leave(const Case& c, int ranks, const std::set<std::string>& given = {});

}  // namespace lab07
