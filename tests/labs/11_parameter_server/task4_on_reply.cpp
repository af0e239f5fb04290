// Task 4: the worker's requests.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <random>

#include "tests/grading/verdict.h"
#include "tests/labs/11_parameter_server/scripts.h"

namespace lab11::task4 {
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
  int64_t version = 3;
  int64_t samples = 5;
};

struct Case {
  std::string name;
  std::vector<Told> replies;
  int workers = 1;
  int64_t elements = 2;
  double first = 0;    // the k-th reply's weights begin with first + k
  double loss = 0.25;  // of the first reply's gradient; the k-th one's is k times that
};

/// A request, and how it came about, as the rank program tells them.
struct Request {
  Asked kind = kPull;
  double ticket = 0;
  double begin = 0, end = 0;  // of the gradient
  double samples = 0;
  double loss = 0;
};
struct Answer {
  Request request;
  double computed = 0;
  double number = 0, item = 0, version = 0;  // of the ticket that compute got
  bool weights_changed = false;
};

std::vector<Answer> read(const std::vector<double>& numbers) {
  constexpr size_t kLength = 11;
  std::vector<Answer> answers;
  for (size_t at = 0; at + kLength <= numbers.size(); at += kLength) {
    const double* v = &numbers[at];
    answers.push_back({{static_cast<Asked>(static_cast<int>(v[0])), v[1], v[2], v[3], v[4], v[5]},
                       v[6],
                       v[7],
                       v[8],
                       v[9],
                       v[10] != 0});
  }
  return answers;
}

void judge_kind(const Told& reply, Asked asked, Asked before, Asked right,
                const std::string& where) {
  if (asked == right) return;
  const std::string shown =
      asked <= kStop ? kRequests[static_cast<size_t>(asked)] : "of an unknown kind";
  if (reply.kind == kNothing && before == kPush)
    stop(
        "after silence the worker does not push again: its gradient may be lost, and with it the "
        "time that it took" +
        where);
  if (reply.kind == kNothing)
    stop(fmt::format("after silence the request is {}, not the same again{}", shown, where));
  stop(fmt::format(
      "after {} the request is {}, but should be {}{}{}", kReplies[reply.kind], shown,
      kRequests[right],
      reply.kind == kWork && reply.samples == 0 ? ": a gradient over 0 samples is pushed, too" : "",
      where));
}

void judge_push(const Told& reply, const Request& asked, const Request& right,
                const std::vector<Request>& of_all, const std::string& where) {
  if (asked.ticket != right.ticket) {
    const bool others = std::ranges::any_of(of_all, [&](const Request& other) {
      return other.kind == kPush && other.ticket == asked.ticket;
    });
    stop(fmt::format("the push says ticket {}, but should say {}{}{}", asked.ticket, right.ticket,
                     reply.item != 0 && asked.ticket == static_cast<double>(reply.item)
                         ? ": that is the number of the item"
                     : others ? ": that is another worker's"
                              : "",
                     where));
  }
  if (asked.begin != right.begin || asked.end != right.end)
    stop(
        fmt::format("the gradient is not the one that was computed{}: it goes from {} to {}, and "
                    "should go from {} to {}{}",
                    reply.kind == kNothing ? ", as it was when it was first pushed" : "",
                    asked.begin, asked.end, right.begin, right.end, where));
  if (asked.samples != right.samples)
    stop(fmt::format("the push says {} samples, but the gradient has {}{}", asked.samples,
                     right.samples, where));
  if (asked.loss != right.loss && !(std::isnan(asked.loss) && std::isnan(right.loss)))
    stop(fmt::format("the push says a loss of {}, but the gradient's is {}{}", asked.loss,
                     right.loss, where));
}

void judge(const Case& c, const std::vector<Answer>& answers) {
  std::vector<Request> last(static_cast<size_t>(c.workers));
  for (size_t k = 0; k < c.replies.size(); ++k) {
    const Told& reply = c.replies[k];
    const Answer& got = answers.at(k);
    Request& right = last[static_cast<size_t>(reply.worker)];
    const Request before = right;
    if (reply.kind == kWork) {
      const double begin = c.first + static_cast<double>(k);
      right = {kPush,
               static_cast<double>(reply.ticket),
               2 * begin,
               2 * (begin + static_cast<double>(c.elements - 1)),
               static_cast<double>(reply.samples),
               c.loss * static_cast<double>(k + 1)};
    }
    if (reply.kind == kTaken) right = {};
    if (reply.kind == kDone) right = {.kind = kStop};
    const std::string where =
        fmt::format("\n(reply {}, {}, to worker {}; its request before was {})", k + 1,
                    kReplies[reply.kind], reply.worker, kRequests[before.kind]);
    if (reply.kind == kWork && got.computed != 1)
      stop(fmt::format("the gradient is computed {} times for one ticket{}", got.computed, where));
    if (reply.kind == kNothing && got.computed > 0)
      stop("a gradient is computed after silence: send again the one that was computed before" +
           where);
    if (reply.kind != kWork && got.computed > 0)
      stop("a gradient is computed without a ticket" + where);
    if (reply.kind == kWork && (got.number != static_cast<double>(reply.ticket) ||
                                got.item != static_cast<double>(reply.item) ||
                                got.version != static_cast<double>(reply.version)))
      stop(fmt::format(
          "compute gets ticket {}, item {}, version {}, but should get the reply's: "
          "ticket {}, item {}, version {}{}",
          got.number, got.item, got.version, reply.ticket, reply.item, reply.version, where));
    if (got.weights_changed)
      stop("the reply's weights have changed: a Tensor is a handle, and others read these" + where);
    judge_kind(reply, got.request.kind, before.kind, right.kind, where);
    if (right.kind == kPush) judge_push(reply, got.request, right, last, where);
  }
}

void expect_workers(const std::vector<Case>& cases) {
  std::vector<Call> calls;
  for (const Case& c : cases) {
    Call call{.scenario = "worker", .inputs = std::vector<Parcel>(1), .name = c.name};
    std::vector<double> replies;
    for (const Told& reply : c.replies)
      for (const int64_t number :
           {static_cast<int64_t>(reply.worker), static_cast<int64_t>(reply.kind), reply.ticket,
            reply.item, reply.version, reply.samples})
        replies.push_back(static_cast<double>(number));
    call.inputs[0].set("replies", replies);
    call.inputs[0].set("workers", c.workers);
    call.inputs[0].set("elements", static_cast<double>(c.elements));
    call.inputs[0].set("first", c.first);
    call.inputs[0].set("loss", c.loss);
    calls.push_back(call);
  }
  judge_calls(calls, {.network = lab::grading::Network::kNone, .given = {"1", "2", "3"}},
              [&](size_t k, const std::vector<Parcel>& ranks) {
                judge(cases[k], read(ranks[0].numbers("requests")));
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
  Case long_silence{.name = "200 times", .replies = {{0, kWork, 3, 5}}};
  long_silence.replies.resize(201);
  expect_workers({long_silence});
}

TEST(Task4, OtherRuns) {  // equal tickets, items and versions, other weights
  std::vector<Told> replies{
      {0, kWork, 0, 0, 0}, {0, kTaken}, {0, kWork, 1, 1, 0, 0}, {0, kNothing}};
  expect_workers({{"one run", replies},
                  {"another", replies, 1, 2, 1000},
                  {"one of one element", replies, 1, 1, 2000},
                  {"a large one", replies, 1, 1031, 3000}});
}

// A gradient that diverged counts as well: what happens to the run is the server's decision.
TEST(Task4, LossesThatAreNotFinite) {
  Case diverges{.name = "an infinite loss",
                .replies = {{0, kWork, 3, 5}, {0, kNothing}, {0, kTaken}}};
  diverges.loss = std::numeric_limits<double>::infinity();
  Case no_number = diverges;
  no_number.name = "a loss that is not a number";
  no_number.loss = std::numeric_limits<double>::quiet_NaN();
  expect_workers({diverges, no_number});
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
        told.version = static_cast<int64_t>(random() % 5);
        told.samples = static_cast<int64_t>(random() % 4);
        if (k % 3 == 2) {
          constexpr int64_t kLarge = int64_t{1} << 33;
          told.ticket += kLarge;
          told.item += kLarge;
          told.version += kLarge;
          told.samples += kLarge;
        }
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
}  // namespace lab11::task4
