// Lab 11 · parameter server. You write this file; parameter_server.h is its contract.
#include "labs/11_parameter_server/parameter_server.h"

#include <algorithm>
#include <numeric>
#include <random>
#include <utility>

#include "common/ops/ops.h"
#include "common/todo.h"

namespace lab11 {

bool on_push(Server& server, const lab::Push& push) {
  // TODO(1): count a gradient, once; update with every n-th.
  //  1. How do you see that this ticket was used before, or taken back?
  //  2. The push holds a mean over its samples. What has to be added up, and divided by what?
  //  3. What must be as at first when the next update's gradients begin to arrive?
  lab::not_implemented("1", "labs/11_parameter_server/parameter_server.cpp");
}

bool may_start(const Server& server) {
  // TODO(2): may one more ticket be handed out?
  //  1. All leases and one more gradient arrive. Which update does the last of them become part of?
  //  2. Which of them has the oldest version?
  lab::not_implemented("2", "labs/11_parameter_server/parameter_server.cpp");
}

std::optional<lab::Ticket> on_pull(Server& server, int worker) {
  // TODO(3): the worker's next ticket.
  //  1. It asks, so it has nothing to do. What if it still has a lease?
  //  2. Which item comes first, and when is there none?
  lab::not_implemented("3", "labs/11_parameter_server/parameter_server.cpp");
}

void on_leave(Server& server, int worker) {
  // TODO(3): take back what this worker has. std::erase_if also works for a map.
  lab::not_implemented("3", "labs/11_parameter_server/parameter_server.cpp");
}

lab::Request on_reply(Worker& worker, const lab::Reply& reply, const Compute& compute) {
  // TODO(4): a switch over reply.kind.
  //  1. What does each kind of reply make the next request?
  //  2. What must you still have when nothing comes back?
  lab::not_implemented("4", "labs/11_parameter_server/parameter_server.cpp");
}

std::vector<int> sample_clients(int clients, int count, uint64_t seed, int64_t round) {
  // TODO(5a): a random set that depends on nothing but the arguments.
  //  1. How do you draw without drawing the same client twice?
  //  2. std::seed_seq makes one seed of several numbers.
  lab::not_implemented("5a", "labs/11_parameter_server/parameter_server.cpp");
}

void outer_step(const lab::Tensor& weights, std::span<const ClientResult> results, Outer& outer) {
  // TODO(5b): three lines of the contract.
  //  1. lab::add_scaled(x, a, y) adds a x to y, lab::add(x, y) adds x to y, lab::scale(x, a)
  //     multiplies x. Which of your tensors may change, and which may not?
  lab::not_implemented("5b", "labs/11_parameter_server/parameter_server.cpp");
}

double server_seconds(int workers, int servers, double bytes, const lab::LinkCost& link) {
  // TODO(6): how large is a message, and how many follow each other at the busiest machine?
  lab::not_implemented("6", "labs/11_parameter_server/parameter_server.cpp");
}

double ring_seconds(int workers, double bytes, const lab::LinkCost& link) {
  // TODO(6): how many steps has a ring, and how large is a chunk?
  lab::not_implemented("6", "labs/11_parameter_server/parameter_server.cpp");
}

int enough_servers(int workers, double bytes, const lab::LinkCost& link, double seconds) {
  // TODO(6): the first of 1 ... workers that is fast enough.
  lab::not_implemented("6", "labs/11_parameter_server/parameter_server.cpp");
}

}  // namespace lab11
