// Lab 07 · all-reduce from messages. You write this file; allreduce.h is its contract.
#include "labs/07_allreduce/allreduce.h"

#include <algorithm>
#include <bit>
#include <vector>

#include "common/todo.h"

namespace lab07 {

void reduce_at_root(const lab::Tensor& tensor, lab::ReduceOp op, lab::ProcessGroup& group) {
  // TODO(1): rank 0 collects, combines, and sends everybody the result.
  //  1. What does a rank other than 0 send and receive?
  //  2. Where does rank 0 put what it receives, until it is combined?
  lab::not_implemented("1", "labs/07_allreduce/allreduce.cpp");
}

void ring_reduce_scatter(const lab::Tensor& tensor, lab::ReduceOp op, lab::ProcessGroup& group) {
  // TODO(2): n - 1 steps around the ring, receiving and adding.
  //  1. Where does chunk c begin, where does it end? It is a view: tensor.rows(first, last).
  //  2. Rank r finishes chunk r in the last step. Which chunk does it receive in the step before?
  //     Which does it send in step 1?
  //  3. Every rank sends and receives in the same step: in which order, so that nobody deadlocks?
  lab::not_implemented("2", "labs/07_allreduce/allreduce.cpp");
}

void ring_all_gather(const lab::Tensor& tensor, lab::ProcessGroup& group) {
  // TODO(2): n - 1 steps around the ring, receiving and keeping.
  //  1. Which chunk can rank r send in the first step, which in the second?
  lab::not_implemented("2", "labs/07_allreduce/allreduce.cpp");
}

void ring_all_reduce(const lab::Tensor& tensor, lab::ReduceOp op, lab::ProcessGroup& group) {
  // TODO(2): two lines.
  lab::not_implemented("2", "labs/07_allreduce/allreduce.cpp");
}

void doubling_all_reduce(const lab::Tensor& tensor, lab::ReduceOp op, lab::ProcessGroup& group) {
  // TODO(3): recursive doubling.
  //  1. Without guests: with whom does rank r exchange the tensor in which step?
  //  2. When may you change a tensor from which a message is being sent?
  //  3. What do a rank from p on and its partner do before these steps, and what after them?
  lab::not_implemented("3", "labs/07_allreduce/allreduce.cpp");
}

Hosts make_hosts(lab::ProcessGroup& world, int ranks_per_host) {
  // TODO(4): two groups by split. Ranks with the same color share a group.
  lab::not_implemented("4", "labs/07_allreduce/allreduce.cpp");
}

void hierarchical_all_reduce(const lab::Tensor& tensor, lab::ReduceOp op, Hosts& hosts) {
  // TODO(4): three calls of task 2's functions.
  //  1. Which part of the tensor does this rank hold after the first?
  lab::not_implemented("4", "labs/07_allreduce/allreduce.cpp");
}

Choice choose(int ranks, int64_t elements, const lab::CostModel& costs) {
  // TODO(5): the times of the contract, and the smallest of them.
  //  1. How many hosts are there, and what does a message cost in an algorithm that knows nothing
  //     of hosts?
  //  2. How many doublings fit into `ranks`, and are there guests?
  lab::not_implemented("5", "labs/07_allreduce/allreduce.cpp");
}

}  // namespace lab07
