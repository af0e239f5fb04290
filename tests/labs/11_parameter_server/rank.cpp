// The rank program of lab 11: the contract's functions, and the scenarios that call them.
#include <algorithm>
#include <string>
#include <utility>

#include "labs/11_parameter_server/parameter_server.h"
#include "tests/grading/implementation.h"
#include "tests/grading/rank_main.h"
#include "tests/labs/11_parameter_server/rank_correct.h"
#include "tests/labs/11_parameter_server/rank_server.h"

using lab::Tensor;
using lab::grading::is_given;
using lab::grading::own;
using lab::grading::Parcel;

namespace lab11 {

// The contract's functions.

bool on_push(Server& server, const lab::Push& push) {
  if (is_given("1")) return given_1::on_push(server, push);
  return own(&on_push)(server, push);
}

bool may_start(const Server& server) {
  if (is_given("2")) return given_2::may_start(server);
  return own(&may_start)(server);
}

std::optional<lab::Ticket> on_pull(Server& server, int worker) {
  if (is_given("3")) return given_3::on_pull(server, worker);
  return own(&on_pull)(server, worker);
}

void on_leave(Server& server, int worker) {
  if (is_given("3")) return given_3::on_leave(server, worker);
  own (&on_leave)(server, worker);
}

lab::Request on_reply(Worker& worker, const lab::Reply& reply, const Compute& compute) {
  if (is_given("4")) return given_4::on_reply(worker, reply, compute);
  return own(&on_reply)(worker, reply, compute);
}

std::vector<int> sample_clients(int clients, int count, uint64_t seed, int64_t round) {
  return own(&sample_clients)(clients, count, seed, round);
}

void outer_step(const Tensor& weights, std::span<const ClientResult> results, Outer& outer) {
  return own(&outer_step)(weights, results, outer);
}

double server_seconds(int workers, int servers, double bytes, const lab::LinkCost& link) {
  return own(&server_seconds)(workers, servers, bytes, link);
}

double ring_seconds(int workers, double bytes, const lab::LinkCost& link) {
  return own(&ring_seconds)(workers, bytes, link);
}

int enough_servers(int workers, double bytes, const lab::LinkCost& link, double seconds) {
  return own(&enough_servers)(workers, bytes, link, seconds);
}

namespace {

/// Task 4: replies to several workers in turn. Per reply: worker, kind, ticket, item, version,
/// samples of the item. All replies of a call have weights of `elements`, the k-th begins with
/// first + k; the gradient is twice these.
Parcel run_worker(const Parcel& input) {
  const std::vector<double> replies = input.numbers("replies");
  const auto first = static_cast<float>(input.number("first"));
  const auto elements = static_cast<int64_t>(input.number("elements"));
  const double loss = input.number("loss");
  std::vector<Worker> workers(static_cast<size_t>(input.number("workers")));
  // Per reply: kind, ticket, first and last element of the gradient, samples, loss; how often it
  // was computed, and for which ticket: number, item, version; whether the weights have changed.
  std::vector<double> requests;
  const auto weights_of = [&](float begin) {
    Tensor weights = Tensor::zeros({elements});
    for (float& value : weights.values()) value = begin++;
    return weights;
  };
  constexpr size_t kReply = 6;
  for (size_t k = 0; kReply * k < replies.size(); ++k) {
    const double* told = &replies[kReply * k];
    const auto at = [&](size_t i) { return static_cast<int64_t>(told[i]); };
    lab::Reply reply{.kind = static_cast<lab::Reply::Kind>(at(1))};
    if (reply.kind == lab::Reply::Kind::kWork) {
      reply.ticket = {.number = at(2), .item = at(3), .version = at(4)};
      reply.weights = weights_of(first + static_cast<float>(k));
    }
    int computed = 0;
    lab::Ticket computed_for;
    const Compute compute = [&](const lab::Ticket& ticket, const Tensor& weights) {
      ++computed;
      computed_for = ticket;
      lab::Gradient gradient{.mean = weights.defined() ? weights.clone() : Tensor::zeros({1}),
                             .samples = at(5),
                             .loss = loss * static_cast<double>(k + 1)};
      for (float& value : gradient.mean.values()) value *= 2;
      return gradient;
    };
    Worker& worker = workers[static_cast<size_t>(at(0))];
    const lab::Request request = on_reply(worker, reply, compute);
    const lab::Push push = request.kind == lab::Request::Kind::kPush ? request.push : lab::Push{};
    const Tensor mean = push.gradient.mean.defined() ? push.gradient.mean : Tensor::zeros({1});
    const bool changed = reply.weights.defined() &&
                         !std::ranges::equal(reply.weights.values(),
                                             weights_of(first + static_cast<float>(k)).values());
    for (const double value :
         {static_cast<double>(request.kind), static_cast<double>(push.ticket),
          static_cast<double>(mean.values().front()), static_cast<double>(mean.values().back()),
          static_cast<double>(push.gradient.samples), push.gradient.loss,
          static_cast<double>(computed), static_cast<double>(computed_for.number),
          static_cast<double>(computed_for.item), static_cast<double>(computed_for.version),
          changed ? 1.0 : 0.0})
      requests.push_back(value);
    worker = Worker(worker);  // nothing is lost that is not in it
  }
  Parcel result;
  result.set("requests", requests);
  return result;
}

/// Task 5a: many sets at once.
Parcel run_sample(const Parcel& input) {
  const std::vector<double> cases = input.numbers("cases");  // clients, count, seed, round
  std::vector<double> sets;                                  // per case: length, clients
  for (size_t i = 0; i + 4 <= cases.size(); i += 4) {
    const std::vector<int> chosen =
        sample_clients(static_cast<int>(cases[i]), static_cast<int>(cases[i + 1]),
                       static_cast<uint64_t>(cases[i + 2]), static_cast<int64_t>(cases[i + 3]));
    sets.push_back(static_cast<double>(chosen.size()));
    sets.insert(sets.end(), chosen.begin(), chosen.end());
  }
  Parcel result;
  result.set("sets", sets);
  return result;
}

/// Task 5b: rounds of one or several outer optimizers, in turn.
Parcel run_outer(const Parcel& input) {
  const Tensor start = input.tensor("weights");
  const auto count = static_cast<size_t>(input.number("optimizers"));
  std::vector<Tensor> weights;
  std::vector<Outer> outers;
  for (size_t k = 0; k < count; ++k) {
    weights.push_back(start.clone());
    outers.push_back({.lr = static_cast<float>(input.number("lr")),
                      .momentum = static_cast<float>(input.number("momentum")),
                      .velocity = Tensor::zeros(start.shape())});
  }
  Parcel result;
  bool changed = false, replaced = false;
  for (size_t round = 0; input.has("samples" + std::to_string(round)); ++round) {
    const std::string number = std::to_string(round);
    const std::vector<double> samples = input.numbers("samples" + number);
    const Tensor values = input.tensor("results" + number);  // [results, elements]
    for (size_t k = 0; k < count; ++k) {
      std::vector<ClientResult> results;
      for (size_t r = 0; r < samples.size(); ++r) {
        const auto row = static_cast<int64_t>(r);
        results.push_back({.weights = values.rows(row, row + 1).clone().view(start.shape()),
                           .samples = static_cast<int64_t>(samples[r])});
      }
      const Outer given = outers[k];
      outer_step(weights[k], results, outers[k]);
      replaced = replaced || !outers[k].velocity.defined() ||
                 outers[k].velocity.data() != given.velocity.data();
      result.set("rates" + number + "." + std::to_string(k),
                 std::vector<double>{outers[k].lr - given.lr, outers[k].momentum - given.momentum});
      for (size_t r = 0; r < results.size(); ++r)
        for (int64_t i = 0; i < start.numel(); ++i)
          changed = changed || results[r].weights.data()[i] !=
                                   values.data()[static_cast<int64_t>(r) * start.numel() + i];
      const std::string entry = number + "." + std::to_string(k);
      result.set("weights" + entry, weights[k].clone());
      result.set("velocity" + entry, outers[k].velocity.clone());
    }
  }
  result.set("changed", changed ? 1.0 : 0.0);
  result.set("replaced", replaced ? 1.0 : 0.0);
  return result;
}

/// Task 6.
Parcel run_times(const Parcel& input) {
  const auto workers = static_cast<int>(input.number("workers"));
  const auto servers = static_cast<int>(input.number("servers"));
  const double bytes = input.number("bytes");
  const lab::LinkCost link{.alpha = input.number("alpha"), .beta = input.number("beta")};
  Parcel result;
  const std::string function = input.text("function");
  if (function == "server_seconds")
    result.set("value", server_seconds(workers, servers, bytes, link));
  else if (function == "ring_seconds")
    result.set("value", ring_seconds(workers, bytes, link));
  else
    result.set("value", enough_servers(workers, bytes, link, input.number("seconds")));
  return result;
}

}  // namespace
}  // namespace lab11

int main(int argc, char** argv) {
  return lab::grading::rank_main(argc, argv,
                                 {.alone = {{"script", lab11::run_script},
                                            {"schedules", lab11::run_schedules},
                                            {"may_start", lab11::run_may_start},
                                            {"worker", lab11::run_worker},
                                            {"sample", lab11::run_sample},
                                            {"outer", lab11::run_outer},
                                            {"times", lab11::run_times}}});
}
