// Task 5: the times of the contract, and the best of them.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <random>
#include <utility>

#include "common/format.h"
#include "labs/07_allreduce/allreduce.h"
#include "tests/labs/07_allreduce/reduction.h"

namespace lab07::task5 {
namespace {

using lab::CostModel;
using lab::counted;
using lab::grading::Numbers;
using lab::grading::Parcel;

constexpr std::array<const char*, 4> kNames = {"reduce_at_root", "ring_all_reduce",
                                               "doubling_all_reduce", "hierarchical_all_reduce"};

struct Question {
  int ranks = 3;
  int64_t elements = 1;
  CostModel costs;
};

int per_host(const Question& q) {
  return q.costs.ranks_per_host == 0 ? q.ranks : q.costs.ranks_per_host;
}

bool knows_hosts(size_t algorithm) { return algorithm == 3; }

/// If messages of the algorithms that know nothing of hosts cost `flat`.
double time_of(size_t algorithm, const Question& q, const lab::LinkCost& flat) {
  CostModel costs = q.costs;
  if (!knows_hosts(algorithm)) costs.inside = flat;
  return seconds_of(
      {.function = kNames.at(algorithm), .elements = q.elements, .ranks_per_host = per_host(q)},
      q.ranks, costs);
}

const lab::LinkCost& slowest(const Question& q) {
  return per_host(q) < q.ranks ? q.costs.between : q.costs.inside;
}

bool equal(double got, double right) {
  constexpr double kTolerance = 1e-9;
  return std::abs(got - right) <= kTolerance * right;
}

/// The mistake in the time of recursive doubling that leads to `got`; empty if none is known.
std::string mistake_in_doubling(const Question& q, double got) {
  const auto on = [&](int ranks) {
    Question changed = q;
    changed.ranks = ranks;
    return time_of(2, changed, slowest(q));
  };
  const auto n = static_cast<unsigned>(q.ranks);
  const int p = static_cast<int>(std::bit_floor(n));
  const double fold = p < q.ranks ? on(3) - on(2) : 0;
  const double addition = q.costs.gamma * static_cast<double>(q.elements);
  if (equal(got, on(p))) return "without the two steps of the guests, ranks p and above";
  if (equal(got, on(static_cast<int>(std::bit_ceil(n)))))
    return "as if n were rounded up to a power of two (p is rounded down), or with one message "
           "of folding (there are two: to the guests' hosts, and back)";
  if (equal(got, on(p) + fold / 2) || equal(got, on(p) + (fold + addition) / 2))
    return "with one message of folding (there are two: to the guests' hosts, and back)";
  if (equal(got, std::log2(n) * on(2) + fold) || equal(got, std::log2(n) * on(2)))
    return "as if there were log2(n) doublings (there are log2(p))";
  for (const int steps : {-1, 1})
    if (equal(got, on(p) + fold + steps * on(2)))
      return fmt::format("with a doubling too {}: there are log2(p) = {}, and p is {}",
                         steps < 0 ? "few" : "many", std::bit_width(n) - 1, p);
  if (equal(got, on(p) + fold - addition))
    return "without the addition of the guests' numbers, those of ranks p and above";
  if (equal(got, on(p) + fold + addition))
    return "as if the guests, ranks p and above, added what they receive at the end";
  return "";
}

/// The mistake in the time of the hierarchical all-reduce that leads to `got`; empty if none is
/// known.
std::string mistake_across_hosts(const Question& q, double got) {
  const int m = per_host(q);
  const auto across = [&](int64_t elements) {  // around the ring of hosts
    Question changed = q;
    changed.ranks = q.ranks / m;
    changed.elements = elements;
    return time_of(1, changed, q.costs.between);
  };
  const auto with_links = [&](const lab::LinkCost& inside, const lab::LinkCost& between) {
    Question changed = q;
    changed.costs.inside = inside;
    changed.costs.between = between;
    return time_of(3, changed, between);
  };
  const auto with_hosts_of = [&](int ranks) {
    Question changed = q;
    changed.costs.ranks_per_host = ranks;
    return time_of(3, changed, q.costs.between);
  };
  const double right = time_of(3, q, slowest(q));
  if (equal(got, right - across((q.elements + m - 1) / m) + across(q.elements)))
    return "as if all elements travelled between hosts (each rank has only a chunk of them)";
  if (equal(got, right - across((q.elements + m - 1) / m) + across(q.elements / m)))
    return "as if the chunk that travels between hosts had E / m elements rounded down";
  if (equal(got, with_hosts_of(q.ranks / m)))
    return "as if there were as many ranks on a host as there are hosts";
  if (equal(got, with_links(q.costs.inside, q.costs.inside)))
    return "as if messages between hosts were as fast as those inside";
  if (equal(got, with_links(q.costs.between, q.costs.between)))
    return "as if messages inside a host were as slow as those between hosts";
  return "";
}

/// The mistake that leads to the time `got`; empty if none is known.
std::string mistake(size_t algorithm, const Question& q, double got) {
  const auto with = [&](const auto& change) {
    Question changed = q;
    change(changed);
    return time_of(algorithm, changed, slowest(changed));
  };
  const auto with_elements = [&](int64_t elements) {
    return with([&](Question& c) { c.elements = elements; });
  };
  if (!knows_hosts(algorithm) && equal(got, time_of(algorithm, q, q.costs.inside)))
    return "with the cost of messages inside a host (there are several hosts)";
  if (q.costs.ranks_per_host == 0 &&
      equal(got, with([](Question& c) { c.costs.ranks_per_host = 1; })))
    return "ranks_per_host = 0 means that all ranks share one host";
  if (!knows_hosts(algorithm) && equal(got, time_of(algorithm, q, q.costs.between)))
    return "with the cost of messages between hosts (there is one host)";
  if (algorithm == 0 &&
      equal(got, with([](Question& c) { c.costs.gamma /= std::max(1, c.ranks - 1); })))
    return "with one addition (rank 0 adds n - 1 times)";
  if (equal(got, with([](Question& c) { c.costs.gamma = 0; })))
    return "as if additions cost nothing";
  if (equal(got, with([](Question& c) { c.costs.gamma *= 4; })))
    return "as if gamma were the time per byte (it is the time per element)";
  if (equal(got, with([](Question& c) { c.costs.gamma *= 2; })))
    return "as if numbers were added on the way back, too";
  const int64_t rest = q.elements % q.ranks;
  const double down = with_elements(q.elements - rest);
  const double up = with_elements(q.elements - rest + q.ranks);
  if (equal(got, down)) return "as if the longest chunk had E / n elements rounded down";
  if (equal(got, down + (up - down) * static_cast<double>(rest) / q.ranks))
    return "as if chunks had E / n elements, with a fraction (the longest chunk is rounded up)";
  if (equal(got, with([](Question& c) {
              c.costs.inside.beta /= 4;
              c.costs.between.beta /= 4;
            })))
    return "as if an element had one byte";
  const std::string why = algorithm == 2   ? mistake_in_doubling(q, got)
                          : algorithm == 3 ? mistake_across_hosts(q, got)
                                           : "";
  if (!why.empty()) return why;
  if (equal(got, with([](Question& c) {
              for (lab::LinkCost* link : {&c.costs.inside, &c.costs.between})
                *link = {.alpha = link->alpha / 2, .beta = link->beta / 2};
            })))
    return "as if messages went one way only";
  for (size_t other = 0; other < kNames.size(); ++other)
    if (other != algorithm && equal(got, time_of(other, q, slowest(q))))
      return fmt::format("that is the time of {}", kNames.at(other));
  const double right = time_of(algorithm, q, slowest(q));
  if (equal(got, 1e6 * right)) return "in us, not in seconds";
  if (q.ranks > 1 && equal(got, right * q.ranks / (q.ranks - 1)))
    return "with n messages (there are n - 1)";
  if (q.elements == 0 && got == 0)
    return "as if an empty tensor did not travel: its messages of 0 bytes cost alpha";
  const int64_t segments = ((q.elements + q.ranks - 1) / q.ranks + kSegment - 1) / kSegment;
  if (algorithm == 1 && equal(got, right + 2 * (q.ranks - 1) * (segments - 1) * slowest(q).alpha))
    return "with alpha for every segment: the formulas are those of whole chunks";
  if (q.elements > 1 << 24)
    return "do the numbers fit? An int counts up to 2^31, a float up to 2^24";
  return "";
}

/// Times in us, with as many digits as tell `a` from `b`.
std::pair<std::string, std::string> told_apart(double a, double b) {
  int digits = 6;
  a *= 1e6;
  b *= 1e6;
  while (digits < 17 && fmt::format("{:.{}g}", a, digits) == fmt::format("{:.{}g}", b, digits))
    ++digits;
  return {fmt::format("{:.{}g}", a, digits), fmt::format("{:.{}g}", b, digits)};
}

std::string in_words(const Question& q) {
  return fmt::format(
      "{}, {}, alpha {:g} s and beta {:g} s per byte inside, {:g} and {:g} "
      "between, {} per host, gamma {:g} s",
      counted(q.ranks, "rank"), counted(q.elements, "element"), q.costs.inside.alpha,
      q.costs.inside.beta, q.costs.between.alpha, q.costs.between.beta, q.costs.ranks_per_host,
      q.costs.gamma);
}

void judge(const Question& q, const Parcel& result) {
  const Numbers got = result.numbers("seconds");
  Numbers right;
  for (size_t i = 0; i < kNames.size(); ++i) {
    right.push_back(time_of(i, q, slowest(q)));
    if (equal(got[i], right[i])) continue;
    const auto [expected, returned] = told_apart(right[i], got[i]);
    const std::string why = mistake(i, q, got[i]);
    lab::grading::stop(fmt::format("the time of {}: expected {} us, got {} us{}\n{}", kNames.at(i),
                                   expected, returned, why.empty() ? "" : ": " + why, in_words(q)));
  }
  if (per_host(q) == q.ranks && got[3] != got[1])
    lab::grading::stop(fmt::format(
        "on one host the hierarchical all-reduce is a ring, and both times are the same number, to "
        "the last bit: call one function for both\nring {:.17g} s, hierarchical {:.17g} s; {}",
        got[1], got[3], in_words(q)));
  const auto best = static_cast<size_t>(result.number("best"));
  const auto least = static_cast<size_t>(std::ranges::min_element(got) - got.begin());
  if (best == least) return;
  if (best >= got.size()) lab::grading::stop("`best` is none of the four algorithms");
  if (got[best] == got[least])
    lab::grading::stop(fmt::format(
        "of equally fast algorithms, `best` is the first: {}, which is as fast as {}\n{}",
        kNames.at(least), kNames.at(best), in_words(q)));
  const auto [of_best, of_least] = told_apart(got[best], got[least]);
  lab::grading::stop(fmt::format(
      "the times are right, but `best` is not the fastest: {} takes {} us, {} {} us\n{}",
      kNames.at(best), of_best, kNames.at(least), of_least, in_words(q)));
}

void expect_answers(const std::vector<Question>& questions) {
  std::vector<lab::grading::Call> calls;
  for (const Question& q : questions) {
    Parcel input;
    input.set("ranks", q.ranks);
    input.set("elements", static_cast<double>(q.elements));
    input.set("costs",
              {q.costs.inside.alpha, q.costs.inside.beta, q.costs.between.alpha,
               q.costs.between.beta, static_cast<double>(q.costs.ranks_per_host), q.costs.gamma});
    calls.push_back({.scenario = "choose", .inputs = {input}});
  }
  judge_calls(
      calls, {.network = lab::grading::Network::kNone},
      [&](size_t k, const std::vector<Parcel>& results) { judge(questions[k], results[0]); });
}

constexpr lab::LinkCost kFast{.alpha = 5e-6, .beta = 1e-9};
constexpr lab::LinkCost kSlow{.alpha = 40e-6, .beta = 9e-9};

TEST(Task5, OneHost) {
  std::vector<Question> questions;
  // First those by which most mistakes can be told apart.
  for (const int ranks : {6, 4, 3, 1, 2, 7, 8, 16, 33, 64, 1000, 4096, (1 << 24) - 1})
    for (const int64_t elements :
         {int64_t{1000}, int64_t{0}, int64_t{1}, (int64_t{1} << 24) + 1, (int64_t{1} << 33) + 1})
      questions.push_back({ranks, elements, {.inside = kFast, .between = kSlow, .gamma = 1e-10}});
  expect_answers(questions);
}

TEST(Task5, JustBelowAndAboveTheCrossover) {
  std::vector<Question> questions;
  for (const int64_t elements : {3210, 3216})  // doubling, ring
    questions.push_back({6, elements, {.inside = kFast, .between = kSlow}});
  // With 3,000 elements they take equally long if 6 alpha = 28,000 beta: here, nearly.
  for (const double factor : {1 - 1e-6, 1 + 1e-6, 1 - 1e-11, 1 + 1e-11})  // ring, doubling
    questions.push_back({6, 3000, {.inside = {.alpha = factor * 28e-6 / 6, .beta = 1e-9}}});
  expect_answers(questions);
}

TEST(Task5, SeveralHosts) {
  std::vector<Question> questions;
  for (const auto& [ranks, on_each] :
       {std::pair{6, 3}, {6, 2}, {6, 6}, {6, 1}, {8, 4}, {64, 8}, {12, 3}})
    for (const int64_t elements : {1, 10, 100'001})
      questions.push_back(
          {ranks,
           elements,
           {.inside = kFast, .between = kSlow, .ranks_per_host = on_each, .gamma = 3e-10}});
  expect_answers(questions);
}

TEST(Task5, AnyCosts) {
  std::mt19937_64 random(lab::grading::scenario_seed() + 500);
  const auto draw = [&](double low, double high) {
    return std::uniform_real_distribution<double>(low, high)(random);
  };
  std::vector<Question> questions;
  for (int k = 0; k < 60; ++k) {
    const int on_each = static_cast<int>(random() % 8) + 1;
    const int ranks = on_each * (static_cast<int>(random() % 8) + 1);
    const double unit = k % 5 == 2 ? 1e-9 : 1;  // of tiny times, too
    questions.push_back({ranks,
                         static_cast<int64_t>(random() % 1'000'000),
                         {.inside = {unit * draw(0, 1e-5), unit * draw(0, 1e-8)},
                          .between = {unit * draw(0, 1e-4), unit * draw(0, 1e-7)},
                          .ranks_per_host = k % 4 == 0 ? 0 : on_each,
                          .gamma = unit * draw(0, 1e-9)}});
    if (k % 6 != 5) continue;  // without elements, twice, so that only the costs differ
    for (const lab::LinkCost& link : {kSlow, kFast})
      questions.push_back({6, 0, {.inside = link, .between = kSlow, .ranks_per_host = 3}});
  }
  expect_answers(questions);
}

}  // namespace
}  // namespace lab07::task5
