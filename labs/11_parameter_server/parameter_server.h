// Lab 11 · parameter server. This is the contract; you write parameter_server.cpp.
//
// One process, the server, holds the weights. Workers pull them, compute the gradient of a piece of
// the data, and push it. No worker has to wait for all the others. Workers may be slow, die, and
// join at any time; messages may be lost, late, or sent twice.
//
// The functions are called one at a time, whenever something has happened. They never wait and send
// nothing: what they return is sent for them, in the simulation and over TCP alike. They keep
// nothing between calls but what is in Server, Worker and Outer. Ticket, Gradient, Push, Request
// and Reply are in common/comm/server/messages.h.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "common/comm/cost_model.h"
#include "common/comm/server/messages.h"
#include "common/tensor/tensor.h"

namespace lab11 {

/// A ticket that a worker has and has not used yet. A worker has one at most.
struct Lease {
  int worker = 0;
  int64_t item = 0;
  int64_t version = 0;  // of the weights that it came with
};

/// What the server knows. Items 0, 1, 2 ... are the microbatches of the run, in their order.
struct Server {
  // Given, and the same for the whole run:
  int gradients_per_update = 1;                              // n
  int64_t staleness = 0;                                     // s; kUnbounded: any
  int64_t items = 0;                                         // of the run; a multiple of n
  std::function<void(const lab::Tensor& mean)> update = {};  // changes the weights once

  // State:
  int64_t version = 0;              // updates made so far
  lab::Tensor sum = {};             // of the next update: the gradients that have come for it, each
                                    // times its samples; zeros at first. May become another tensor
  int64_t samples = 0;              // of these gradients
  int gradients = 0;                // how many of them have come; below n
  int64_t next_item = 0;            // all items below have been handed out at least once
  std::set<int64_t> returned = {};  // items that were handed out and came back without a gradient
  int64_t next_ticket = 0;
  std::map<int64_t, Lease> leases = {};  // by the number of their ticket
};
inline constexpr int64_t kUnbounded = int64_t{1} << 62;

/// Task 1 · A gradient has arrived.
///
/// If no lease has this ticket's number, the gradient has been counted before, or the ticket was
/// taken back. Then nothing changes, and the result is false.
/// Otherwise the lease ends, and the gradient counts, once, with the weight of its samples. With
/// the n-th gradient since the last update, `server.update` is called, once, with their mean over
/// all samples (zeros if there are none), which it needs only during the call. It changes nothing
/// in `server`, and `version` is still the old one. After the call `version` grows by one, and
/// `sum`, `samples` and `gradients` begin anew, at zero. The result is true. push.gradient stays as
/// it is; its mean has the shape of `sum`, even with 0 samples.
bool on_push(Server& server, const lab::Push& push);

/// Task 2 · Whether one more ticket may be handed out now, so that no gradient can ever be used
/// with a staleness above s. Changes nothing. Whether an item is left plays no part here. `server`:
/// in any state that pulls, pushes and leaving workers can bring it to.
///
/// The staleness of a gradient is the version when it becomes part of an update, minus the version
/// of its ticket. Gradients become part of updates in the order of their arrival, n in each. Leases
/// may be used in any order. The answer is "no" only if the bound could break: the new gradient, or
/// one of the leases, might be the last of all to arrive.
bool may_start(const Server& server);

/// Task 3 · A worker asks for work. Returns its ticket, or nothing: the same pull is then repeated
/// when something has changed.
///
/// If the worker still has a lease, it has lost the ticket (the reply was lost, or it died and came
/// back): first the lease ends as in on_leave, whatever comes next. Then, if may_start() says so,
/// it gets the smallest item that was returned; if there is none, the next new one, if the run has
/// one left. The ticket's number is next_ticket, which then grows by one; its version is the
/// present one; the lease is noted.
std::optional<lab::Ticket> on_pull(Server& server, int worker);

/// Task 3 · A worker is gone, or silent for too long. If it has a lease, that ends, and its item is
/// returned.
void on_leave(Server& server, int worker);

/// What a worker computes: the gradient of the ticket's item at these weights.
using Compute = std::function<lab::Gradient(const lab::Ticket& ticket, const lab::Tensor& weights)>;

struct Worker {
  lab::Request last = {};  // the request without an answer; at first a pull
};

/// Task 4 · Given the reply to `worker.last`, the worker's next request, which is stored there,
/// too.
///
/// kWork: computes, once, and pushes the gradient under the ticket's number. kTaken: pulls (what
/// `push` holds in a pull does not matter). kDone: returns kStop; all later replies are kNothing.
/// kNothing: the same request again, because nobody knows whether it or its answer was lost;
/// nothing is computed again. So the first call, with kNothing, returns a pull.
lab::Request on_reply(Worker& worker, const lab::Reply& reply, const Compute& compute);

/// Task 5a · Federated rounds: which clients take part in round `round`, in ascending order.
///
/// `count` different ones of 0 ... clients - 1, drawn at random; all of them if count is larger;
/// none if either number is 0.
/// `seed` and `round` are below 2^32, because std::seed_seq uses no more than 32 bits of a number
/// (and takes numbers of one type only: cast them). None of the arguments is negative.
/// The same arguments give the same result. Over many rounds (or seeds) every set of `count`
/// clients is as likely as any other. Two seeds give different sequences of sets, if there is more
/// than one set. Nor may one sequence be another one shifted by some rounds, as it would be with a
/// generator seeded with `seed + round`.
std::vector<int> sample_clients(int clients, int count, uint64_t seed, int64_t round);

/// What came back from a client after its local steps.
struct ClientResult {
  lab::Tensor weights = {};  // flat
  int64_t samples = 0;       // that it has learnt from
};

/// The outer optimizer: SGD with Nesterov's momentum, whose gradient is how far the clients moved.
struct Outer {
  float lr = 1;               // its learning rate
  float momentum = 0;         // mu
  lab::Tensor velocity = {};  // b, flat; zeros at first
};

/// Task 5b · The end of a round, from those clients that have answered:
///
///   d = sum over r of (m_r / M) w_r  -  w       m_r: samples of result r; M: their sum
///   b = mu b + d
///   w = w + lr (d + mu b)
///
/// `weights` is w, flat, and changes in place; so does outer.velocity. lr = 1 and mu = 0 leave
/// lab 03's average. Without results, or without samples, nothing changes, not even b. The results
/// stay as they are; all their weights are finite, even times M, and in separate memory.
void outer_step(const lab::Tensor& weights, std::span<const ClientResult> results, Outer& outer);

/// Task 6 · How long one synchronous step's messages take, in seconds, with the weights (`bytes`)
/// divided equally among `servers` machines: every worker pulls a part from each of them and later
/// pushes a part to each. A message of b bytes takes link.seconds(b). A machine sends one message
/// at a time and receives one at a time. Messages are arranged so that the busiest machine is never
/// idle. First come all pulls, then all pushes, and each of the two takes max(workers, servers)
/// messages one after the other.
double server_seconds(int workers, int servers, double bytes, const lab::LinkCost& link);

/// Task 6 · A ring all-reduce of the same number of bytes among the workers, without a server: lab
/// 07's time with equal chunks, whole or not, and without the additions.
double ring_seconds(int workers, double bytes, const lab::LinkCost& link);

/// Task 6 · The fewest servers, from 1 to `workers`, with which server_seconds is at most
/// `seconds`; 0 if it is more, even with `workers` of them.
int enough_servers(int workers, double bytes, const lab::LinkCost& link, double seconds);

/// Given: whether every item has become part of an update.
inline bool finished(const Server& server) {
  return server.version * server.gradients_per_update >= server.items;
}

}  // namespace lab11
