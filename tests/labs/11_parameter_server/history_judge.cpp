// Which mistake a server's history shows.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>

#include "tests/grading/verdict.h"
#include "tests/labs/11_parameter_server/history.h"
#include "tests/labs/11_parameter_server/staleness.h"

namespace lab11 {
namespace {

using lab::grading::Mistake;
using lab::grading::Numbers;
using lab::grading::stop;
using Terms = std::vector<Oracle::Term>;

std::string told(const State& state) {
  std::vector<std::string> leases;
  for (const auto& [ticket, lease] : state.leases)
    leases.push_back(fmt::format("ticket {} (worker {}, item {}, version {})", ticket, lease.worker,
                                 lease.item, lease.version));
  return fmt::format(
      "version {}, {} gradients for the next update, leases: {}, returned items: {}, next new item "
      "{}",
      state.version, state.gradients,
      leases.empty() ? "none" : fmt::format("{}", fmt::join(leases, "; ")),
      state.returned.empty() ? "none" : fmt::format("{}", fmt::join(state.returned, ", ")),
      state.next_item);
}

std::string place(const Oracle& oracle, size_t call, const State& before) {
  return fmt::format("\n(call {}; n = {}, s = {}; before it: {})", call + 1, oracle.n(),
                     bound_in_words(oracle.s()), told(before));
}

void expect_state(const char* what, int64_t got, int64_t right, const std::string& why,
                  const std::string& where) {
  if (got != right)
    stop(fmt::format("{} is {}, and should be {}: {}{}", what, got, right, why, where));
}

// Task 1.

void judge_push(const Record& call, const Oracle& oracle, const State& before, bool right,
                int64_t updates_before, const std::string& where) {
  const int64_t ticket = call.argument;
  if (call.push_changed)
    stop("the push's gradient has changed: it may be sent again, so work on server.sum" + where);
  const bool seems_counted = call.yes || call.updates > updates_before ||
                             call.state.gradients != before.gradients ||
                             call.state.samples != before.samples;
  if (!right && seems_counted) {
    if (oracle.was_counted(ticket))
      stop(
          fmt::format("the gradient of ticket {} counts a second time: a push may be sent again, "
                      "and a ticket is valid once{}",
                      ticket, where));
    stop(
        fmt::format("the gradient of ticket {} counts, and nobody has a lease of this number: its "
                    "item was handed to another worker, or will be, and would be used twice{}",
                    ticket, where));
  }
  if (right && !call.yes)
    stop(fmt::format("on_push returns false, and the gradient of ticket {} counts{}", ticket,
                     where));
  if (right && call.state.leases.count(ticket) > 0)
    stop(fmt::format("ticket {} still has its lease: the same push would count again{}", ticket,
                     where));
  const State& state = oracle.state();
  const bool due = state.version > before.version;
  if (call.updates - updates_before > (due ? 1 : 0))
    stop(fmt::format("update is called with {} of {} gradients: it was not due{}",
                     before.gradients + (right ? 1 : 0), oracle.n(), where));
  if (due && call.updates == updates_before)
    stop(fmt::format("update is not called with gradient {} of {}{}", oracle.n(), oracle.n(),
                     where));
  expect_state("version", call.state.version, state.version, "it counts the updates", where);
  expect_state("gradients", call.state.gradients, state.gradients,
               due ? "a new update begins with none" : "those since the last update", where);
  expect_state(
      "samples", call.state.samples, state.samples,
      due ? "a new update begins with none" : "the samples of all gradients since the last update",
      where);
}

Numbers mean_of(const std::vector<Terms>& updates, size_t count,
                const std::function<double(const Oracle::Term&, const Terms&)>& weight) {
  Numbers all;
  for (size_t u = 0; u < count; ++u) {
    Numbers mean(entries::kElements, 0.0);
    for (const Oracle::Term& term : updates[u])
      for (size_t i = 0; i < mean.size(); ++i)
        mean[i] += weight(term, updates[u]) * term.gradient[i];
    all.insert(all.end(), mean.begin(), mean.end());
  }
  return all;
}

double samples_of(const Terms& terms) {
  double sum = 0;
  for (const Oracle::Term& term : terms) sum += term.samples;
  return sum;
}

std::vector<Mistake> mean_mistakes(const Oracle& oracle, size_t count) {
  const auto with = [&](const auto& weight) { return mean_of(oracle.terms(), count, weight); };
  const auto per_sample = [](const Oracle::Term& term, const Terms& all) {
    return samples_of(all) > 0 ? term.samples / samples_of(all) : 0.0;
  };
  std::vector<Mistake> mistakes{
      {with([](const auto&, const Terms& all) { return 1.0 / static_cast<double>(all.size()); }),
       "the plain mean of n gradients: each counts by its number of samples"},
      {with([](const Oracle::Term& term, const Terms&) { return term.samples; }),
       "a sum over samples that is not divided by their number"},
      {with([](const Oracle::Term& term, const Terms& all) {
         return term.samples / static_cast<double>(all.size());
       }),
       "divided by the number of gradients, not of samples"},
      {with([](const auto&, const Terms&) { return 1.0; }), "a sum of gradients, not their mean"},
      {with([](const Oracle::Term&, const Terms& all) {
         return samples_of(all) > 0 ? 1.0 / samples_of(all) : 0.0;
       }),
       "divided by all samples, but no gradient was multiplied by its own"},
      {with([&](const Oracle::Term& term, const Terms& all) {
         return &term == &all.back() ? (term.samples > 0 ? 1.0 : 0.0) : 0.0;
       }),
       "the last gradient alone: the others are gone"},
      {with([&](const Oracle::Term& term, const Terms& all) {
         return &term == &all.back() ? 0.0 : per_sample(term, all);
       }),
       "the last gradient is missing: it arrives after the update has been made"}};
  // What is left over.
  const Numbers right = with(per_sample);
  Numbers kept_sum, kept_mean;
  for (size_t u = 0; u < count; ++u)
    for (size_t i = 0; i < entries::kElements; ++i) {
      const double samples = samples_of(oracle.terms()[u]);
      const double before = u > 0 ? kept_mean[(u - 1) * entries::kElements + i] : 0.0;
      double sum = before;
      for (const Oracle::Term& term : oracle.terms()[u]) sum += term.samples * term.gradient[i];
      kept_mean.push_back(samples > 0 ? sum / samples : 0.0);
    }
  mistakes.push_back({kept_mean, "what the update before has left in sum is in it, too"});
  return mistakes;
}

void judge_means(const Oracle& oracle, const Numbers& got) {
  const size_t count = std::min(oracle.means().size(), got.size() / entries::kElements);
  Numbers right, tolerance,
      shown(got.begin(), got.begin() + static_cast<std::ptrdiff_t>(count * entries::kElements));
  for (size_t u = 0; u < count; ++u)
    for (size_t i = 0; i < entries::kElements; ++i) {
      right.push_back(oracle.means()[u][i]);
      double magnitude = 0;
      for (const Oracle::Term& term : oracle.terms()[u])
        magnitude += term.samples * std::abs(term.gradient[i]);
      tolerance.push_back(1e-6 * magnitude / std::max(1.0, samples_of(oracle.terms()[u])) + 1e-12);
    }
  if (shown.empty()) return;
  lab::grading::expect(
      shown,
      {.what = "the mean gradients that update is called with",
       .values = right,
       .tolerance = tolerance,
       .name =
           [](size_t i) {
             return fmt::format("update {}, element {}", i / entries::kElements + 1,
                                i % entries::kElements);
           },
       .mistakes = [&] { return mean_mistakes(oracle, count); },
       .if_not_finite = "a mean that is not a number: update with zeros if there is no sample"});
}

// Task 3.

void judge_leases(const Record& call, const Oracle& oracle, const State& before,
                  const std::string& where) {
  const State& right = oracle.state();
  for (const auto& [ticket, lease] : call.state.leases)
    if (right.leases.count(ticket) == 0)
      stop(fmt::format(
          "ticket {} still has its lease, and worker {} {}{}", ticket, lease.worker,
          call.operation == entries::kLeave
              ? "is gone: its item would wait for it forever"
              : "asks for work: it has lost that ticket, and its item would wait forever",
          where));
  for (const auto& [ticket, lease] : right.leases) {
    const auto got = call.state.leases.find(ticket);
    if (got == call.state.leases.end()) {
      if (before.leases.count(ticket) > 0)
        stop(fmt::format(
            "the lease of ticket {} is gone: it belongs to worker {}, not to worker {}{}", ticket,
            lease.worker, call.argument, where));
      stop(fmt::format("the lease of ticket {} is not noted: its push would be refused{}", ticket,
                       where));
    }
    if (got->second != lease)
      stop(fmt::format(
          "the lease of ticket {} says worker {}, item {}, version {}; it should say worker {}, "
          "item {}, version {}{}",
          ticket, got->second.worker, got->second.item, got->second.version, lease.worker,
          lease.item, lease.version, where));
  }
  for (const int64_t item : right.returned)
    if (call.state.returned.count(item) == 0)
      stop(
          fmt::format("item {} is lost: its lease has ended, and it is not among the returned "
                      "items{}",
                      item, where));
  for (const int64_t item : call.state.returned)
    if (right.returned.count(item) == 0)
      stop(fmt::format(
          "item {} is among the returned items, and {}: it would be used twice{}", item,
          std::ranges::any_of(right.leases, [&](const auto& e) { return e.second.item == item; })
              ? "a worker has it"
              : "nobody has returned it",
          where));
}

void judge_pull(const Record& call, const Oracle& oracle, const State& before,
                std::optional<int64_t> right, const std::string& where) {
  if (call.yes && !right) {
    const bool items_left =
        !oracle.state().returned.empty() || call.item < oracle.state().next_item;
    if (!oracle.may_start())
      stop("on_pull hands out a ticket although may_start() says no" + where);
    stop(fmt::format(
        "on_pull hands out item {}, {}{}", call.item,
        items_left ? "which somebody else has or which was used" : "which the run does not have",
        where));
  }
  if (!call.yes && right) {
    if (!before.returned.empty() && before.next_item == oracle.state().next_item)
      stop(
          fmt::format("on_pull hands out nothing, and item {} was returned: nobody would ever "
                      "compute it{}",
                      *right, where));
    stop(fmt::format("on_pull hands out nothing, and may_start() says yes with item {} left{}",
                     *right, where));
  }
  if (right && call.item != *right) {
    for (const auto& [ticket, lease] : before.leases)
      if (lease.worker == call.argument && lease.item == *right)
        stop(
            fmt::format("worker {} asks for work, so it has lost ticket {}; but its lease goes on, "
                        "and item {} would wait for it forever{}",
                        call.argument, ticket, *right, where));
    const auto has = std::ranges::find_if(
        before.leases, [&](const auto& e) { return e.second.item == call.item; });
    if (has != before.leases.end() && has->second.worker != call.argument)
      stop(fmt::format("item {} is handed out a second time: worker {} has it{}", call.item,
                       has->second.worker, where));
    if (call.item > *right)
      stop(
          fmt::format("item {} is handed out before item {}, which was returned: with a bound, "
                      "everybody may have to wait for that one{}",
                      call.item, *right, where));
    stop(fmt::format("item {} is handed out, and should be item {}{}", call.item, *right, where));
  }
  if (right) {
    expect_state("the ticket's number", call.ticket, oracle.state().next_ticket - 1,
                 "no two tickets have the same, not even for the same item", where);
    expect_state("the ticket's version", call.ticket_version, oracle.state().version,
                 "that of the weights as they are now", where);
  }
  judge_leases(call, oracle, before, where);
  expect_state("next_item", call.state.next_item, oracle.state().next_item,
               "the first item that was never handed out", where);
  expect_state("next_ticket", call.state.next_ticket, oracle.state().next_ticket,
               "one more for each ticket", where);
}

}  // namespace

void expect_history(const std::vector<Record>& history, std::vector<Oracle>& oracles,
                    const std::vector<std::vector<double>>& means, bool may_start_is_theirs) {
  std::vector<int64_t> updates(oracles.size(), 0);
  std::vector<Answers> answers(oracles.size());
  for (size_t k = 0; k < history.size(); ++k) {
    const Record& call = history[k];
    Oracle& oracle = oracles.at(call.server);
    const State before = oracle.state();
    const std::string where = place(oracle, k, before);
    switch (call.operation) {
      case entries::kPull:
        if (may_start_is_theirs) {
          Oracle asked = oracle;
          asked.leave(call.argument);
          if (asked.has_item()) {
            answers[call.server].emplace_back(asked.state(), call.yes);
            judge_may_start(asked.n(), asked.s(), answers[call.server], where);
          }
        }
        judge_pull(call, oracle, before, oracle.pull(call.argument), where);
        break;
      case entries::kPush: {
        const bool right = oracle.push(call);
        judge_push(call, oracle, before, right, updates[call.server], where);
        updates[call.server] = call.updates;
        break;
      }
      case entries::kLeave:
        oracle.leave(call.argument);
        judge_leases(call, oracle, before, where);
        break;
      default:
        answers[call.server].emplace_back(before, call.yes);
        judge_may_start(oracle.n(), oracle.s(), answers[call.server], where);
    }
    if (call.operation != entries::kPush &&
        (call.state.version != before.version || call.state.gradients != before.gradients ||
         call.state.samples != before.samples || call.updates != updates[call.server]))
      stop("gradients are counted by on_push only" + where);
  }
  for (size_t k = 0; k < oracles.size(); ++k) judge_means(oracles[k], means.at(k));
}

}  // namespace lab11
