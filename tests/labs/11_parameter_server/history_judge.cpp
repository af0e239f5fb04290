// Which mistake a server's history shows.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "tests/grading/verdict.h"
#include "tests/labs/11_parameter_server/history.h"
#include "tests/labs/11_parameter_server/staleness.h"

namespace lab11 {
namespace {

using lab::grading::stop;

std::string told(const State& state) {
  constexpr size_t kMost = 8;
  std::vector<std::string> leases;
  for (const auto& [ticket, lease] : state.leases) {
    if (leases.size() == kMost) {
      leases.push_back(fmt::format("{} more", state.leases.size() - kMost));
      break;
    }
    leases.push_back(fmt::format("ticket {} (worker {}, item {}, version {})", ticket, lease.worker,
                                 lease.item, lease.version));
  }
  return fmt::format(
      "version {}, {} gradients for the next update, leases: {}, returned items: {}, next new item "
      "{}",
      state.version, state.gradients,
      leases.empty() ? "none" : fmt::format("{}", fmt::join(leases, "; ")),
      state.returned.empty() ? "none" : fmt::format("{}", fmt::join(state.returned, ", ")),
      state.next_item);
}

std::string place(const Oracle& oracle, size_t call, const State& before) {
  return fmt::format("\n(call {}; n = {}, s = {}; before the call: {})", call + 1, oracle.n(),
                     bound_in_words(oracle.s()), told(before));
}

std::string name_of(const Record& call) {
  switch (call.operation) {
    case entries::kPull:
      return "on_pull";
    case entries::kPush:
      return "on_push";
    case entries::kLeave:
      return "on_leave";
    default:
      return "may_start";
  }
}

void expect_state(const std::string& what, int64_t got, int64_t right, const std::string& why,
                  const std::string& where) {
  if (got != right)
    stop(fmt::format("{} is {}, but should be {}: {}{}", what, got, right, why, where));
}

// Task 1.

void judge_refused(const Record& call, const Oracle& oracle, const State& before,
                   int64_t updates_before, const std::string& where) {
  const int64_t ticket = call.argument;
  const bool counted = call.updates > updates_before || call.state.gradients != before.gradients ||
                       call.state.samples != before.samples;
  if (counted && oracle.was_counted(ticket))
    stop(
        fmt::format("the gradient of ticket {} was counted a second time: a push may be sent "
                    "again, but a ticket is valid only once{}",
                    ticket, where));
  if (counted)
    stop(fmt::format(
        "the gradient of ticket {} was counted, although nobody has a lease of this number: its "
        "item was handed to another worker, or will be, and would be used twice{}",
        ticket, where));
  if (call.yes)
    stop(
        fmt::format("on_push returns true for ticket {}, which has no lease; its gradient does not "
                    "count, so it must return false{}",
                    ticket, where));
}

void judge_push(const Record& call, const Oracle& oracle, const State& before, bool right,
                int64_t updates_before, const std::string& where) {
  const int64_t ticket = call.argument;
  if (call.push_changed)
    stop("the push's gradient has changed: it may be sent again, so work on server.sum" + where);
  if (!right) judge_refused(call, oracle, before, updates_before, where);
  if (right && !call.yes)
    stop(
        fmt::format("on_push returns false for ticket {}, which has a lease; its gradient counts, "
                    "so it must return true{}",
                    ticket, where));
  if (right && call.state.leases.count(ticket) > 0)
    stop(fmt::format("ticket {} still has its lease: the same push would count again{}", ticket,
                     where));
  const State& state = oracle.state();
  const bool due = state.version > before.version;
  if (due && call.updates > updates_before + 1)
    stop(fmt::format("update is called {} times for one update{}", call.updates - updates_before,
                     where));
  if (!due && call.updates > updates_before)
    stop(fmt::format("update is called with {} of {} gradients: it was not due{}",
                     before.gradients + 1, oracle.n(), where));
  if (due && call.updates == updates_before)
    stop(fmt::format("update is not called with gradient {} of {}{}", oracle.n(), oracle.n(),
                     where));
  if (due && call.version_seen != before.version)
    stop(
        fmt::format("update is called when the version is already {}: first call update, which "
                    "turns version {} into the next, then count it{}",
                    call.version_seen, before.version, where));
  expect_state("version", call.state.version, state.version, "it counts the updates", where);
  expect_state("gradients", call.state.gradients, state.gradients,
               due ? "a new update begins with none" : "those since the last update", where);
  expect_state(
      "samples", call.state.samples, state.samples,
      due ? "a new update begins with none" : "the samples of all gradients since the last update",
      where);
}

// Task 3.

void judge_pull(const Record& call, const Oracle& oracle, const State& before,
                std::optional<int64_t> right, const std::string& where) {
  const auto own = std::ranges::find_if(
      before.leases, [&](const auto& e) { return e.second.worker == call.argument; });
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
          fmt::format("on_pull hands out nothing, although item {} was returned: nobody would "
                      "ever compute it{}",
                      *right, where));
    if (own != before.leases.end())
      stop(
          fmt::format("on_pull hands out nothing: end the lease of ticket {} first, because then "
                      "may_start() says yes with item {} left{}",
                      own->first, *right, where));
    stop(
        fmt::format("on_pull hands out nothing, although may_start() says yes and item {} is "
                    "left{}",
                    *right, where));
  }
  if (right && call.item != *right) {
    if (own != before.leases.end() && call.state.leases.count(own->first) > 0)
      stop(
          fmt::format("worker {} asks for work, so it has lost ticket {}; but its lease goes on, "
                      "and item {} would wait for it forever{}",
                      call.argument, own->first, own->second.item, where));
    if (own != before.leases.end() && call.item == own->first && own->second.item == *right)
      stop(
          fmt::format("on_pull hands out item {}, which is the number of the ticket that worker {} "
                      "has lost: return the item of its lease, {}{}",
                      call.item, call.argument, *right, where));
    const auto has = std::ranges::find_if(
        before.leases, [&](const auto& e) { return e.second.item == call.item; });
    if (has != before.leases.end() && has->second.worker != call.argument)
      stop(fmt::format("item {} is handed out a second time: worker {} has it{}", call.item,
                       has->second.worker, where));
    if (own != before.leases.end() && own->second.item == *right &&
        call.state.returned.count(*right) == 0)
      stop(
          fmt::format("item {} is lost: the lease of ticket {} has ended, but the item is not "
                      "among the returned ones{}",
                      *right, own->first, where));
    if (call.item > *right)
      stop(
          fmt::format("item {} is handed out before item {}, which {}: with a bound, "
                      "everybody may have to wait for that one{}",
                      call.item, *right,
                      own != before.leases.end() && own->second.item == *right
                          ? fmt::format("this pull has returned with ticket {}", own->first)
                          : "was returned",
                      where));
    stop(fmt::format("item {} is handed out, but should be item {}{}", call.item, *right, where));
  }
  if (right) {
    expect_state("the ticket's number", call.ticket, before.next_ticket,
                 "server.next_ticket; no two tickets have the same, not even for the same item",
                 where);
    expect_state("the ticket's version", call.ticket_version, oracle.state().version,
                 "that of the weights as they are now", where);
  }
}

bool same(const std::vector<double>& a, const std::vector<double>& b) {
  return std::ranges::equal(
      a, b, [](double x, double y) { return x == y || (std::isnan(x) && std::isnan(y)); });
}

// All of them: what has become of the rest of the state.

void judge_leases(const Record& call, const State& right, const State& before,
                  const std::string& where) {
  for (const auto& [ticket, lease] : call.state.leases) {
    if (right.leases.count(ticket) > 0) continue;
    if (before.leases.count(ticket) == 0)
      stop(
          fmt::format("{} notes a lease of ticket {}, although nobody has been given that ticket{}",
                      name_of(call), ticket, where));
    stop(
        fmt::format("ticket {} still has its lease, although worker {} {}{}", ticket, lease.worker,
                    call.operation == entries::kLeave
                        ? "is gone: its item would wait for it forever"
                        : "asks for work: it has lost that ticket, and its item would wait forever",
                    where));
  }
  for (const auto& [ticket, lease] : right.leases) {
    const auto got = call.state.leases.find(ticket);
    if (got == call.state.leases.end() && before.leases.count(ticket) == 0)
      stop(fmt::format("the lease of ticket {} is not noted: its push would be refused{}", ticket,
                       where));
    if (got == call.state.leases.end())
      stop(fmt::format("the lease of ticket {} is gone: it belongs to worker {}, but {}{}", ticket,
                       lease.worker,
                       call.operation == entries::kPush
                           ? fmt::format("ticket {} was pushed", call.argument)
                           : fmt::format("only worker {} has lost its lease", call.argument),
                       where));
    if (got->second != lease)
      stop(fmt::format(
          "the lease of ticket {} says worker {}, item {}, version {}; it should say worker {}, "
          "item {}, version {}{}",
          ticket, got->second.worker, got->second.item, got->second.version, lease.worker,
          lease.item, lease.version, where));
  }
}

void judge_returned(const Record& call, const State& right, const State& before,
                    const std::string& where) {
  for (const int64_t item : right.returned) {
    if (call.state.returned.count(item) > 0) continue;
    if (before.returned.count(item) > 0)
      stop(fmt::format("item {} is lost: {} has taken it from the returned items{}", item,
                       name_of(call), where));
    stop(fmt::format(
        "item {} is lost: its lease has ended, but it is not among the returned items{}", item,
        where));
  }
  for (const int64_t item : call.state.returned)
    if (right.returned.count(item) == 0)
      stop(fmt::format(
          "item {} is among the returned items after {}, although {}: it would be used twice{}",
          item, name_of(call),
          std::ranges::any_of(right.leases, [&](const auto& e) { return e.second.item == item; })
              ? "a worker has it"
              : "nobody has returned it",
          where));
}

void judge_rest(const Record& call, const Oracle& oracle, const State& before,
                const State& logged_before, int64_t updates_before, const std::string& where) {
  judge_leases(call, oracle.state(), before, where);
  judge_returned(call, oracle.state(), before, where);
  const std::string after = fmt::format(" after {}", name_of(call));
  expect_state("next_item" + after, call.state.next_item, oracle.state().next_item,
               "the first item that was never handed out", where);
  expect_state("next_ticket" + after, call.state.next_ticket, oracle.state().next_ticket,
               "one more for each ticket", where);
  if (call.operation != entries::kPush &&
      (call.state.version != before.version || call.state.gradients != before.gradients ||
       call.state.samples != before.samples || call.updates != updates_before ||
       !same(call.state.sum, logged_before.sum)))
    stop(fmt::format("{} changes what on_push has counted: version, gradients, samples, or sum{}",
                     name_of(call), where));
}

}  // namespace

void expect_history(const std::vector<Record>& history, std::vector<Oracle>& oracles,
                    const std::vector<std::vector<double>>& means, bool may_start_is_theirs) {
  struct Past {
    int64_t updates = 0;
    Answers answers = {};
    State logged = {};
    std::string wrong_sum = {};  // told after the means, whose mistakes say more
  };
  std::vector<Past> pasts(oracles.size());
  for (size_t m = 0; m < oracles.size(); ++m) pasts[m].logged = oracles[m].state();
  for (size_t k = 0; k < history.size(); ++k) {
    const Record& call = history[k];
    Oracle& oracle = oracles.at(call.server);
    Past& past = pasts[call.server];
    const State before = oracle.state();
    const std::string where = place(oracle, k, before);
    switch (call.operation) {
      case entries::kPull:
        if (may_start_is_theirs) {
          Oracle asked = oracle;
          asked.leave(call.argument);
          if (asked.has_item()) {
            past.answers.push_back(
                {oracle.n(), oracle.s(), oracle.items(), asked.state(), call.yes});
            judge_last(past.answers, where);
          }
        }
        judge_pull(call, oracle, before, oracle.pull(call.argument), where);
        break;
      case entries::kPush: {
        const bool right = oracle.push(call.argument, call.samples, call.gradient);
        judge_push(call, oracle, before, right, past.updates, where);
        const bool due = oracle.state().version > before.version;
        if (past.wrong_sum.empty())
          if (const auto why = wrong_sum(oracle, call.state.sum, due); !why.empty())
            past.wrong_sum = why + where;
        break;
      }
      case entries::kLeave:
        oracle.leave(call.argument);
        break;
      default:
        past.answers.push_back({oracle.n(), oracle.s(), oracle.items(), before, call.yes});
        judge_last(past.answers, where);
    }
    judge_rest(call, oracle, before, past.logged, past.updates, where);
    past.updates = call.updates;
    past.logged = call.state;
  }
  for (size_t m = 0; m < oracles.size(); ++m) {
    judge_means(oracles[m], means.at(m), pasts[m].wrong_sum);
    if (!pasts[m].wrong_sum.empty()) stop(pasts[m].wrong_sum);
  }
}

}  // namespace lab11
