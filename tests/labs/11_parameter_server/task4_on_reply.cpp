// Task 4: the worker's requests.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <random>

#include "tests/grading/verdict.h"
#include "tests/labs/11_parameter_server/scripts.h"

namespace lab11 {
namespace {

using lab::grading::Call;
using lab::grading::Parcel;
using lab::grading::stop;

enum Kind { kNothing, kWork, kTaken, kDone };  // of a reply
enum Asked { kPull, kPush, kStop };            // of a request
constexpr std::array<const char*, 4> kReplies{"kNothing", "kWork", "kTaken", "kDone"};
constexpr std::array<const char*, 3> kRequests{"a pull", "a push", "a stop"};

struct Told {
  int worker = 0;
  Kind kind = kNothing;
  int64_t ticket = 0;
  int64_t item = 0;
};

struct Case {
  std::string name;
  std::vector<Told> replies;
  int workers = 1;
};

struct Request {
  Asked kind = kPull;
  double ticket = 0;
  double place = 0;
  double samples = 0;
};

void judge(const Case& c, const std::vector<double>& got) {
  std::vector<Request> last(static_cast<size_t>(c.workers));
  for (size_t k = 0; k < c.replies.size(); ++k) {
    const Told& reply = c.replies[k];
    const auto shown = static_cast<size_t>(got.at(5 * k));
    const Request asked{static_cast<Asked>(shown), got.at(5 * k + 1), got.at(5 * k + 2),
                        got.at(5 * k + 3)};
    const double computed = got.at(5 * k + 4);
    Request& right = last[static_cast<size_t>(reply.worker)];
    const Request before = right;
    if (reply.kind == kWork)
      right = {kPush, static_cast<double>(reply.ticket),
               4 * static_cast<double>(k) + 0.5 + 100 * static_cast<double>(reply.item),
               static_cast<double>(reply.item) + 2};
    if (reply.kind == kTaken) right = {};
    if (reply.kind == kDone) right = {.kind = kStop};
    const std::string where =
        fmt::format("\n(reply {}, {}, to worker {}; its request before was {})", k + 1,
                    kReplies[reply.kind], reply.worker, kRequests[before.kind]);
    if (reply.kind == kWork && computed != 1)
      stop(fmt::format("the gradient is computed {} times for one ticket{}", computed, where));
    if (reply.kind != kWork && computed > 0)
      stop(
          fmt::format("a gradient is computed without a ticket{}: after silence, what was computed "
                      "is sent again{}",
                      reply.kind == kNothing ? " and once more" : "", where));
    if (asked.kind != right.kind) {
      if (reply.kind == kNothing && before.kind == kPush)
        stop(
            "after silence the worker does not push again: its gradient may be lost, and the time "
            "it took" +
            where);
      if (reply.kind == kNothing)
        stop(fmt::format("after silence the request is {}, not the same again{}",
                         shown < 3 ? kRequests[shown] : "unknown", where));
      stop(fmt::format("after {} the request is {}, and should be {}{}", kReplies[reply.kind],
                       shown < 3 ? kRequests[shown] : "unknown", kRequests[right.kind], where));
    }
    if (right.kind != kPush) continue;
    if (asked.ticket != right.ticket)
      stop(fmt::format(
          "the push says ticket {}, and should say {}{}{}", asked.ticket, right.ticket,
          asked.ticket == static_cast<double>(reply.item) ? ": that is the number of the item" : "",
          where));
    if (asked.place != right.place)
      stop("the gradient is not that of the ticket's item at the weights that came with it" +
           where);
    if (asked.samples != right.samples)
      stop(fmt::format("the push says {} samples, and the gradient has {}{}", asked.samples,
                       right.samples, where));
  }
}

void expect_workers(const std::vector<Case>& cases) {
  std::vector<Call> calls;
  for (const Case& c : cases) {
    Call call{.scenario = "worker", .inputs = std::vector<Parcel>(1), .name = c.name};
    std::vector<double> replies;
    for (const Told& reply : c.replies)
      replies.insert(replies.end(),
                     {static_cast<double>(reply.worker), static_cast<double>(reply.kind),
                      static_cast<double>(reply.ticket), static_cast<double>(reply.item)});
    call.inputs[0].set("replies", replies);
    call.inputs[0].set("workers", c.workers);
    calls.push_back(call);
  }
  judge_calls(calls, {.network = lab::grading::Network::kNone, .given = {"1", "2", "3"}},
              [&](size_t k, const std::vector<Parcel>& ranks) {
                judge(cases[k], ranks[0].numbers("requests"));
              });
}

TEST(Task4, ByHand) {
  expect_workers({{"one ticket", {{0, kNothing}, {0, kWork, 3, 5}, {0, kTaken}, {0, kDone}}},
                  {"two tickets",
                   {{0, kNothing}, {0, kWork, 7, 5}, {0, kTaken}, {0, kWork, 9, 2}, {0, kTaken}}}});
}

TEST(Task4, Silence) {
  expect_workers({{"at every point",
                   {{0, kNothing},
                    {0, kNothing},
                    {0, kWork, 3, 5},
                    {0, kNothing},
                    {0, kNothing},
                    {0, kTaken},
                    {0, kNothing},
                    {0, kWork, 4, 6},
                    {0, kNothing},
                    {0, kTaken},
                    {0, kDone},
                    {0, kNothing}}}});
}

TEST(Task4, SeveralWorkersInTurn) {
  std::mt19937_64 random(lab::grading::scenario_seed() + 40);
  std::vector<Case> cases;
  for (int k = 0; k < 12; ++k) {
    Case c{.name = fmt::format("drawn, number {}", k), .replies = {}, .workers = 3};
    std::vector<Asked> last(3, kPull);
    for (int i = 0; i < 40; ++i) {
      Told told{.worker = static_cast<int>(random() % 3)};
      Asked& asked = last[static_cast<size_t>(told.worker)];
      if (random() % 3 > 0 && asked != kStop) {
        told.kind = asked == kPush ? kTaken : random() % 8 == 0 ? kDone : kWork;
        told.ticket = static_cast<int64_t>(random() % 1000);
        told.item = static_cast<int64_t>(random() % 1000);
        asked = told.kind == kWork ? kPush : told.kind == kTaken ? kPull : kStop;
      }
      c.replies.push_back(told);
    }
    cases.push_back(c);
  }
  expect_workers(cases);
}

TEST(Task4, Schedules) { expect_schedules("4", 5, 50); }

}  // namespace
}  // namespace lab11
