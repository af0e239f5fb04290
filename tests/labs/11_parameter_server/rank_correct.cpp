#include "tests/labs/11_parameter_server/rank_correct.h"

#include <algorithm>

#include "tests/grading/implementation.h"

namespace lab11 {

namespace given_1 {

LAB_GIVEN bool on_push(Server& server, const lab::Push& push) {
  if (server.leases.erase(push.ticket) == 0) return false;
  const std::span<const float> from = push.gradient.mean.values();
  const std::span<float> sum = server.sum.values();
  const auto weight = static_cast<float>(push.gradient.samples);
  for (size_t i = 0; i < sum.size(); ++i) sum[i] += weight * from[i];
  server.samples += push.gradient.samples;
  server.gradients += 1;
  if (server.gradients == server.gradients_per_update) {
    for (float& value : sum)
      value = server.samples > 0 ? value / static_cast<float>(server.samples) : 0.0F;
    server.update(server.sum);
    server.version += 1;
    server.gradients = 0;
    server.samples = 0;
    server.sum.fill(0.0F);
  }
  return true;
}

}  // namespace given_1

namespace given_2 {

LAB_GIVEN bool may_start(const Server& server) {
  int64_t oldest = server.version;
  for (const auto& entry : server.leases) oldest = std::min(oldest, entry.second.version);
  const auto leases = static_cast<int64_t>(server.leases.size());
  const int64_t arrived = server.version * server.gradients_per_update + server.gradients;
  return (arrived + leases) / server.gradients_per_update <= oldest + server.staleness;
}

}  // namespace given_2

namespace given_3 {

LAB_GIVEN void on_leave(Server& server, int worker) {
  for (auto entry = server.leases.begin(); entry != server.leases.end();) {
    const auto next = std::next(entry);
    if (entry->second.worker == worker) {
      server.returned.insert(entry->second.item);
      server.leases.erase(entry);
    }
    entry = next;
  }
}

LAB_GIVEN std::optional<lab::Ticket> on_pull(Server& server, int worker) {
  given_3::on_leave(server, worker);
  if (!may_start(server)) return {};
  lab::Ticket ticket{.number = server.next_ticket, .item = 0, .version = server.version};
  if (const auto first = server.returned.begin(); first != server.returned.end()) {
    ticket.item = *first;
    server.returned.erase(first);
  } else if (server.next_item < server.items) {
    ticket.item = server.next_item;
    server.next_item += 1;
  } else {
    return {};
  }
  server.next_ticket += 1;
  server.leases.emplace(ticket.number, Lease{worker, ticket.item, ticket.version});
  return ticket;
}

}  // namespace given_3

namespace given_4 {

LAB_GIVEN lab::Request on_reply(Worker& worker, const lab::Reply& reply, const Compute& compute) {
  using Kind = lab::Reply::Kind;
  if (reply.kind == Kind::kNothing) return worker.last;
  lab::Request next;
  if (reply.kind == Kind::kDone) next.kind = lab::Request::Kind::kStop;
  if (reply.kind == Kind::kWork) {
    next.kind = lab::Request::Kind::kPush;
    next.push.ticket = reply.ticket.number;
    next.push.gradient = compute(reply.ticket, reply.weights);
  }
  worker.last = next;
  return next;
}

}  // namespace given_4

}  // namespace lab11
