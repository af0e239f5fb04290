// Lab 11 · parameter server: the solution.
#include "labs/11_parameter_server/parameter_server.h"

#include <algorithm>
#include <numeric>
#include <random>
#include <utility>

#include "common/ops/ops.h"

namespace lab11 {

// Task 1
bool on_push(Server& server, const lab::Push& push) {
  const auto lease = server.leases.find(push.ticket);
  if (lease == server.leases.end()) return false;
  server.leases.erase(lease);
  lab::add_scaled(push.gradient.mean, static_cast<float>(push.gradient.samples), server.sum);
  server.samples += push.gradient.samples;
  if (++server.gradients < server.gradients_per_update) return true;

  const float factor = server.samples > 0 ? 1.0F / static_cast<float>(server.samples) : 0.0F;
  lab::scale(server.sum, factor);
  server.update(server.sum);
  ++server.version;
  server.sum.fill(0);
  server.samples = 0;
  server.gradients = 0;
  return true;
}

// Task 2
bool may_start(const Server& server) {
  // If the new gradient or the oldest lease came last, after all that are under way:
  const int64_t under_way = static_cast<int64_t>(server.leases.size()) + server.gradients;
  const int64_t last_update = server.version + under_way / server.gradients_per_update;
  int64_t oldest = server.version;
  for (const auto& [ticket, lease] : server.leases) oldest = std::min(oldest, lease.version);
  return last_update - oldest <= server.staleness;
}

// Task 3
std::optional<lab::Ticket> on_pull(Server& server, int worker) {
  on_leave(server, worker);
  const bool has_item = !server.returned.empty() || server.next_item < server.items;
  if (!has_item || !may_start(server)) return std::nullopt;
  int64_t item = server.next_item;
  if (server.returned.empty()) {
    ++server.next_item;
  } else {
    item = *server.returned.begin();
    server.returned.erase(item);
  }
  const lab::Ticket ticket{.number = server.next_ticket++, .item = item, .version = server.version};
  server.leases[ticket.number] = {.worker = worker, .item = item, .version = ticket.version};
  return ticket;
}

void on_leave(Server& server, int worker) {
  std::erase_if(server.leases, [&](const auto& entry) {
    const Lease& lease = entry.second;
    if (lease.worker == worker) server.returned.insert(lease.item);
    return lease.worker == worker;
  });
}

// Task 4
lab::Request on_reply(Worker& worker, const lab::Reply& reply, const Compute& compute) {
  switch (reply.kind) {
    case lab::Reply::Kind::kWork:
      worker.last = {.kind = lab::Request::Kind::kPush,
                     .push = {.ticket = reply.ticket.number,
                              .gradient = compute(reply.ticket, reply.weights)}};
      break;
    case lab::Reply::Kind::kTaken:
      worker.last = {.kind = lab::Request::Kind::kPull};
      break;
    case lab::Reply::Kind::kDone:
      worker.last = {.kind = lab::Request::Kind::kStop};
      break;
    case lab::Reply::Kind::kNothing:
      break;
  }
  return worker.last;
}

// Task 5a
std::vector<int> sample_clients(int clients, int count, uint64_t seed, int64_t round) {
  std::vector<int> chosen(static_cast<size_t>(clients));
  std::iota(chosen.begin(), chosen.end(), 0);
  std::seed_seq sequence{seed, static_cast<uint64_t>(round)};
  std::mt19937_64 random(sequence);
  std::ranges::shuffle(chosen, random);
  chosen.resize(static_cast<size_t>(std::min(count, clients)));
  std::ranges::sort(chosen);
  return chosen;
}

// Task 5b
void outer_step(const lab::Tensor& weights, std::span<const ClientResult> results, Outer& outer) {
  int64_t samples = 0;
  for (const ClientResult& result : results) samples += result.samples;
  if (samples == 0) return;
  const lab::Tensor moved = lab::Tensor::zeros(weights.shape());
  for (const ClientResult& result : results) {
    const auto share = static_cast<float>(result.samples) / static_cast<float>(samples);
    lab::add_scaled(result.weights, share, moved);
  }
  lab::add_scaled(weights, -1.0F, moved);
  lab::scale(outer.velocity, outer.momentum);
  lab::add(moved, outer.velocity);
  lab::add_scaled(moved, outer.lr, weights);
  lab::add_scaled(outer.velocity, outer.lr * outer.momentum, weights);
}

// Task 6
double server_seconds(int workers, int servers, double bytes, const lab::LinkCost& link) {
  return 2.0 * std::max(workers, servers) * link.seconds(bytes / servers);
}

double ring_seconds(int workers, double bytes, const lab::LinkCost& link) {
  return 2.0 * (workers - 1) * link.seconds(bytes / workers);
}

int enough_servers(int workers, double bytes, const lab::LinkCost& link, double seconds) {
  for (int servers = 1; servers <= workers; ++servers)
    if (server_seconds(workers, servers, bytes, link) <= seconds) return servers;
  return 0;
}

}  // namespace lab11
