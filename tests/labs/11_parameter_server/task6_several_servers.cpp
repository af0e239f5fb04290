// Task 6: the time of one server, several, and a ring.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "tests/grading/verdict.h"

namespace lab11::task6 {
namespace {

using lab::grading::Call;
using lab::grading::Mistake;
using lab::grading::Parcel;

struct Case {
  std::string name;
  double workers = 4;
  double servers = 1;
  double bytes = 1e6;
  double alpha = 1e-4;
  double beta = 1e-9;
  double seconds = 0;

  double message(double part) const { return alpha + beta * part; }
};

double server_time(const Case& c, double servers) {
  return 2 * std::max(c.workers, servers) * c.message(c.bytes / servers);
}

double ring_time(const Case& c) { return 2 * (c.workers - 1) * c.message(c.bytes / c.workers); }

double enough(const Case& c) {
  for (double k = 1; k <= c.workers; ++k)
    if (server_time(c, k) <= c.seconds) return k;
  return 0;
}

void expect_times(const std::string& function, const std::vector<Case>& cases) {
  std::vector<Call> calls;
  for (const Case& c : cases) {
    Call call{.scenario = "times",
              .inputs = std::vector<Parcel>(1),
              .name = fmt::format(
                  "{}: {:g} workers, {:g} servers, {:g} bytes, alpha {:g}, beta {:g}, {:g} seconds",
                  c.name, c.workers, c.servers, c.bytes, c.alpha, c.beta, c.seconds)};
    Parcel& input = call.inputs[0];
    input.set_text("function", function);
    input.set("workers", c.workers);
    input.set("servers", c.servers);
    input.set("bytes", c.bytes);
    input.set("alpha", c.alpha);
    input.set("beta", c.beta);
    input.set("seconds", c.seconds);
    calls.push_back(call);
  }
  judge_calls(
      calls, {.network = lab::grading::Network::kNone},
      [&](size_t k, const std::vector<Parcel>& ranks) {
        const Case& c = cases[k];
        std::vector<Mistake> mistakes;
        double right = enough(c);
        const auto mistake = [&](double value, const char* message) {
          mistakes.push_back({{value}, message});
        };
        if (function == "server_seconds") {
          right = server_time(c, c.servers);
          mistake(right / 2, "one direction only: weights are pulled and gradients pushed");
          mistake(2 * c.workers * c.message(c.bytes),
                  "every message has all bytes: a server holds only its part");
          mistake(2 * c.workers * c.message(c.bytes / c.servers),
                  "only a server's messages are counted: a worker exchanges one with every server; "
                  "with more servers than workers, the workers are the busiest");
          mistake(2 * c.servers * c.message(c.bytes / c.servers),
                  "only a worker's messages are counted: a server exchanges one with every worker");
          mistake(2 * c.workers * c.servers * c.message(c.bytes / c.servers),
                  "as if the servers took turns: they send at the same time");
          mistake(2 * c.message(c.bytes / c.servers),
                  "as if a server sent to all workers at once: it sends one message at a time");
          const double part = std::floor(c.bytes / c.servers);
          for (const double whole : {part, part + 1})
            mistake(2 * std::max(c.workers, c.servers) * c.message(whole),
                    "a part is bytes / servers, not rounded to whole bytes");
          mistake(static_cast<float>(right), "computed in float; compute in double");
          mistake(2 * (c.workers + c.servers - 1) * c.message(c.bytes / c.servers),
                  "workers + servers - 1 messages: the busiest machine has max(workers, servers)");
          mistake(std::max(c.workers, c.servers) * c.message(2 * c.bytes / c.servers),
                  "one message for pull and push: they are two, each with its latency");
          if (c.workers == c.servers)
            mistake(2 * (c.workers - 1) * c.message(c.bytes / c.servers),
                    "a machine's own part is left out: it is a message, too, since servers are "
                    "separate machines");
          mistake(2 * (c.alpha + std::max(c.workers, c.servers) * c.beta * c.bytes / c.servers),
                  "as if the latency were paid once: every message pays it");
        } else if (function == "ring_seconds") {
          right = ring_time(c);
          mistake(2 * c.workers * c.message(c.bytes / c.workers),
                  "one step too many: a ring of n ranks has n - 1 steps in each half");
          mistake(right / 2, "half of a ring: reduce-scatter and all-gather both have n - 1 steps");
          mistake(2 * (c.workers - 1) * c.message(c.bytes),
                  "all bytes in every step: a step carries one chunk, 1/n of them");
          mistake(2 * (c.workers - 1) * c.message(c.bytes / std::max(1.0, c.workers - 1)),
                  "a chunk is 1/n of the bytes, not 1/(n - 1)");
          mistake(2 * (c.alpha + (c.workers - 1) * c.beta * c.bytes / c.workers),
                  "as if the latency were paid once: every step pays it");
          const double chunk = std::floor(c.bytes / c.workers);
          for (const double whole : {chunk, chunk + 1})
            mistake(2 * (c.workers - 1) * c.message(whole),
                    "a chunk is bytes / workers, not rounded to whole bytes");
        } else {
          double fewer = 0, last = 0, strict = 0;
          for (double m = c.workers; m >= 1; --m) {
            if (server_time(c, m) <= c.seconds) last = std::max(last, m);
            if (server_time(c, m) < c.seconds) strict = m;
            if (server_time(c, m) <= c.seconds && m < c.workers) fewer = m;
          }
          mistake(fewer, "the case of as many servers as workers was left out; it is allowed");
          mistake(strict, "a time of exactly `seconds` was refused; it is enough");
          mistake(last, "this is the largest number that is enough; it must be the smallest");
          if (right == 0)
            for (const double none : {c.workers, c.workers + 1, -1.0})
              mistake(none, "it must be 0, if even as many servers as workers take longer");
          for (double m = c.workers; m >= 1; --m)
            if (server_time(c, 1) / m <= c.seconds)
              mistake(
                  m, "the time does not fall like 1 / servers, since each message has its latency");
        }
        lab::grading::expect(ranks[0].number("value"), {.what = function,
                                                        .values = {right},
                                                        .tolerance = {1e-9 * right},
                                                        .mistakes = [&] { return mistakes; }});
      });
}

std::vector<Case> drawn(uint64_t seed, int64_t most) {
  std::mt19937_64 random(seed + lab::grading::scenario_seed());
  std::vector<Case> cases;
  for (int k = 0; k < 20; ++k)
    cases.push_back({.name = fmt::format("drawn, number {}", k),
                     .workers = 1 + static_cast<double>(random() % 12),
                     .servers = 1 + static_cast<double>(random() % static_cast<uint64_t>(most)),
                     .bytes = static_cast<double>(random() % 50'000'000),
                     .alpha = 1e-6 * static_cast<double>(random() % 2000),
                     .beta = 1e-10 * static_cast<double>(1 + random() % 100)});
  return cases;
}

TEST(Task6, ServerSeconds) {
  std::vector<Case> cases = drawn(600, 12);
  cases.insert(
      cases.begin(),
      {{.name = "one server"},
       {.name = "two servers", .servers = 2},
       {.name = "as many as workers", .servers = 4},
       {.name = "more than workers", .workers = 3, .servers = 7},
       {.name = "three servers, bytes that do not divide", .servers = 3, .bytes = 1e6 + 1}});
  expect_times("server_seconds", cases);
}

TEST(Task6, RingSeconds) {
  std::vector<Case> cases = drawn(601, 2);
  cases.insert(cases.begin(), {{.name = "four workers"}, {.name = "one worker", .workers = 1}});
  expect_times("ring_seconds", cases);
}

TEST(Task6, EnoughServers) {
  std::vector<Case> cases;
  for (Case c : drawn(602, 2)) {
    // Just as long as with k servers, or a little less or more; or less than any takes.
    const auto k = 1 + static_cast<double>(cases.size() % static_cast<size_t>(c.workers));
    constexpr double kFactors[] = {1 + 1e-10, 1 - 1e-10, 1.01};
    c.seconds = server_time(c, k) * kFactors[cases.size() % 3];
    if (cases.size() % 7 == 6) c.seconds = 0.99 * server_time(c, c.workers);
    cases.push_back(c);
  }
  // Of numbers that no way of calculating rounds.
  Case exact{.name = "exactly enough with two", .workers = 8, .alpha = 0, .beta = 0.5};
  exact.seconds = server_time(exact, 2);
  const Case no_bytes{
      .name = "no bytes, only latency", .workers = 4, .bytes = 0, .alpha = 0.25, .seconds = 2};
  Case less = no_bytes;
  less.name = "no bytes, and less time than the latency";
  less.seconds = 1.75;
  Case all{.name = "as many as workers", .alpha = 1e-5};
  all.seconds = 1.01 * server_time(all, 4);
  cases.insert(cases.begin(), {{.name = "time for everything", .seconds = 1},
                               {.name = "two are enough", .workers = 8, .seconds = 0.0105},
                               exact,
                               no_bytes,
                               less,
                               all,
                               {.name = "never enough", .seconds = 1e-6}});
  for (const double k : {2.0, 17.0, 39.0, 40.0}) {
    Case c{.name = fmt::format("{} of 40 servers", k), .workers = 40, .alpha = 2e-3};
    c.seconds = server_time(c, k) * (1 + 1e-6);
    cases.push_back(c);
  }
  expect_times("enough_servers", cases);
}

}  // namespace
}  // namespace lab11::task6
