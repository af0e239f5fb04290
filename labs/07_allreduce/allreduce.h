// Lab 07 · all-reduce from messages. This is the contract; you write allreduce.cpp.
//
// The functions communicate only by send, recv, isend, irecv and batch_isend_irecv (make_hosts: by
// split), and all of their messages are done when they return. If a message fails, let its
// exception through as it is: a rank returns with the result or throws. They keep nothing between
// calls, not even scratch. All ranks of `group` call them together, with the same number of
// elements and the same `op`. Messages may have any tag that both sides agree on.
//
// n: ranks of the group, at least 1; a single rank sends nothing, and its tensor stays as it is. E:
// elements of `tensor`, a vector of float32 in host memory; E may be 0, less than n, or no multiple
// of n. S = 4 E: its bytes. The result replaces the tensor's numbers, and has the same bits on
// every rank (after kMin and kMax, the sign of a zero and the handling of a NaN may differ).
// Whatever `op` is, numbers are combined by lab::combine, with the group as its first argument.
//
// Chunk c of n is elements floor(c E / n) up to, not including, floor((c + 1) E / n). The largest
// has C = ceil(E / n) elements. A chunk or a tensor without elements travels as well, as a message
// of 0 bytes; you need not combine it. If C is above kSegment, the functions of task 2 may cut what
// they send into any number of messages, and ring_all_reduce may take one part of the tensor after
// the other. There is no time limit then.
//
// Scratch is the memory that a function may hold at one time in addition to `tensor`; a few kB for
// Work objects, vectors and the like do not count. Where a comment names ranks, the others have
// none.
//
// Times are the longest that a function may take on a network where a message of b bytes takes
// alpha + beta b, combining an element takes gamma, and a rank can send one message and receive one
// at the same time, but no more than one of each (lab::CostModel).
#pragma once

#include <array>
#include <cstdint>

#include "common/comm/combine.h"
#include "common/comm/cost_model.h"
#include "common/comm/process_group.h"

namespace lab07 {

/// A chunk of at most this many elements travels as one message in task 2 (section 6.4): 512 KiB.
inline constexpr int64_t kSegment = 1 << 17;

/// Task 1 · Rank 0 receives the tensors of all others, one by one in any order, and sends everybody
/// the result.
///
/// Rank 0 sends and receives n - 1 messages of S bytes, every other rank one. Scratch: S on rank 0.
/// Time: (n - 1) (2 (alpha + beta S) + gamma E).
void reduce_at_root(const lab::Tensor& tensor, lab::ReduceOp op, lab::ProcessGroup& group);

/// Task 2 · Around the ring, 0 to 1 to 2 ... to 0, in n - 1 steps. In each, every rank sends one
/// chunk to the next rank and receives one from the previous.
///
/// Afterwards chunk r of rank r is combined over all ranks; its other chunks may hold anything.
/// Scratch: 4 C bytes; 4 (C + 1) where chunks are cut (two segments, each rounded up).
/// Time: (n - 1) (alpha + 4 beta C + gamma C).
void ring_reduce_scatter(const lab::Tensor& tensor, lab::ReduceOp op, lab::ProcessGroup& group);

/// Task 2 · In the same direction. Before the call chunk r is right on rank r, afterwards on all
/// ranks. No scratch. Time: (n - 1) (alpha + 4 beta C).
void ring_all_gather(const lab::Tensor& tensor, lab::ProcessGroup& group);

/// Task 2 · Both of them, one after the other, for tensors of any length. Scratch and time: those
/// of the two.
void ring_all_reduce(const lab::Tensor& tensor, lab::ReduceOp op, lab::ProcessGroup& group);

/// Task 3 · Recursive doubling. Each message is the whole tensor, S bytes. Let p be the largest
/// power of two that is not above n.
///
/// Rank r >= p sends its tensor to rank r - p, which combines it with its own, and receives the
/// result from there at the end. In between, for d = 1, 2, 4 ... below p, each rank r < p exchanges
/// what it has with rank r XOR d, and combines the two.
///
/// Scratch: S on ranks below p. Time: log2(p) (alpha + beta S + gamma E) and, if p < n,
/// 2 (alpha + beta S) + gamma E more.
void doubling_all_reduce(const lab::Tensor& tensor, lab::ReduceOp op, lab::ProcessGroup& group);

/// Two groups of a rank, where the network within a host is faster than that between hosts.
struct Hosts {
  lab::ProcessGroup inside;  // the ranks of its host, in the order of make_hosts' `world`
  lab::ProcessGroup across;  // the ranks with its number in `inside`, in the order of the hosts
};

/// Task 4 · Ranks 0, 1 ... `ranks_per_host` - 1 of `world` share the first host, and so on.
/// `ranks_per_host` divides the number of ranks; you need not check that. Two calls of split, in
/// the same order on all ranks, and no other communication.
Hosts make_hosts(lab::ProcessGroup& world, int ranks_per_host);

/// Task 4 · Reduce-scatter inside; all-reduce of this rank's chunk (chunk i of m on rank i of a
/// host) across, around a ring; all-gather inside.
///
/// With m ranks on each of h hosts, C = ceil(E / m) and D = ceil(C / h), scratch is 4 C bytes, or
/// 4 (C + 1) if C is above kSegment, and then there is no time limit. Otherwise the time, with
/// alpha and beta inside a host and alpha' and beta' between hosts, is
///   2 (m - 1) (alpha + 4 beta C) + (m - 1) gamma C
/// + 2 (h - 1) (alpha' + 4 beta' D) + (h - 1) gamma D.
void hierarchical_all_reduce(const lab::Tensor& tensor, lab::ReduceOp op, Hosts& hosts);

enum class Algorithm { kRoot, kRing, kDoubling, kHierarchical };
inline constexpr size_t kAlgorithms = 4;

struct Choice {
  std::array<double, kAlgorithms> seconds = {};  // predicted, in the order of Algorithm
  Algorithm best = Algorithm::kRoot;  // with the smallest of `seconds`; of equal ones the first
};

/// Task 5 · The predicted time of each all-reduce of `elements` on `ranks` ranks: the times above,
/// for any size, even if chunks may be cut, in double. That of ring_all_reduce is the sum of its
/// two halves'.
///
/// costs.ranks_per_host divides `ranks`, or is 0: one host. The first three know nothing of hosts:
/// as soon as there are two, each of their messages counts as one between hosts. On one host, the
/// hierarchical one is a ring: the two times are the same number, to the last bit.
Choice choose(int ranks, int64_t elements, const lab::CostModel& costs);

}  // namespace lab07
