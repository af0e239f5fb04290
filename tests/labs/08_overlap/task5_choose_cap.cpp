// Task 5: the time that a backward pass cannot hide, and the capacity that leaves the least of it.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "tests/grading/verdict.h"

namespace lab08 {
namespace {

using lab::grading::Call;
using lab::grading::JobOptions;
using lab::grading::Mistake;
using lab::grading::Numbers;
using lab::grading::Parcel;
using lab::grading::stop;

struct Case {
  std::string name;
  Numbers sizes;     // bytes
  Numbers ready_at;  // s
  double alpha = 0;
  double beta = 0;
  double ranks = 2;
  Numbers caps = {};

  double seconds(double bytes) const { return 2 * (ranks - 1) * (alpha + beta * bytes / ranks); }
};

using Buckets = std::vector<std::vector<size_t>>;

Buckets buckets_of(const Case& c, double cap) {
  Buckets buckets;
  double filled = 0;
  for (size_t p = c.sizes.size(); p-- > 0;) {
    if (buckets.empty() || filled + c.sizes[p] > cap) {
      buckets.emplace_back();
      filled = 0;
    }
    buckets.back().push_back(p);
    filled += c.sizes[p];
  }
  return buckets;
}

/// How a mistake would count.
struct Way {
  bool in_order = true;     // a bucket is posted after the one before it
  bool one_by_one = true;   // and travels after it
  bool starts_late = true;  // not before it is ready
  double steps = 2;         // times (n - 1)
  bool part = true;         // 1/n of the bytes in each
};

double exposed(const Case& c, const Buckets& buckets, const Way& way = {}) {
  double posted = 0;
  double arrived = 0;
  double end = 0;
  for (const double at : c.ready_at) end = std::max(end, at);
  for (const auto& bucket : buckets) {
    double bytes = 0;
    double ready = 0;
    for (size_t p : bucket) {
      bytes += c.sizes[p];
      ready = std::max(ready, c.ready_at[p]);
    }
    posted = way.in_order ? std::max(posted, ready) : ready;
    const double duration =
        way.steps * (c.ranks - 1) * (c.alpha + c.beta * bytes / (way.part ? c.ranks : 1));
    const double start = way.starts_late ? posted : 0;
    arrived =
        way.one_by_one ? std::max(arrived, start) + duration : std::max(arrived, start + duration);
  }
  return std::max(0.0, arrived - end);
}

Parcel input_of(const Case& c) {
  Parcel input;
  input.set("sizes", c.sizes);
  input.set("ready_at", c.ready_at);
  input.set("alpha", c.alpha);
  input.set("beta", c.beta);
  input.set("ranks", c.ranks);
  return input;
}

Case draw(std::mt19937_64& random, int number) {
  const auto below = [&](uint64_t limit) { return static_cast<double>(random() % limit); };
  Case c{.name = fmt::format("drawn, number {}", number), .sizes = {}, .ready_at = {}};
  const size_t count = 2 + random() % 9;
  for (size_t p = 0; p < count; ++p) {
    c.sizes.push_back(4 * (1 + below(250'000)));
    c.ready_at.push_back(0);
  }
  double now = 0;
  for (size_t p = count; p-- > 0;) c.ready_at[p] = now += 1e-3 * (1 + below(10));
  // Not always from the last to the first.
  if (number % 3 == 2) std::swap(c.ready_at[0], c.ready_at[count - 1]);
  c.alpha = 1e-4 * below(30);
  c.beta = 1e-9 * (1 + below(40));
  c.ranks = 1 + below(6);
  return c;
}

std::vector<Case> some_cases(uint64_t seed) {
  std::vector<Case> cases{
      {"three buckets by hand", {4000, 4000, 4000}, {3e-3, 2e-3, 1e-3}, 1e-4, 1e-6, 2},
      {"a fast network", {4000, 4000, 4000}, {3e-3, 2e-3, 1e-3}, 0, 1e-9, 3},
      {"a slow network", {4000, 4000, 4000}, {3e-3, 2e-3, 1e-3}, 1e-2, 1e-6, 4},
      {"one rank", {4000, 4000, 4000}, {3e-3, 2e-3, 1e-3}, 1e-2, 1e-6, 1},
      {"the last parameter is the last to be ready", {8, 8, 8}, {1e-3, 2e-3, 9e-3}, 1e-3, 0, 2}};
  std::mt19937_64 random(500 + seed);
  for (int k = 0; k < 12; ++k) cases.push_back(draw(random, k));
  return cases;
}

TEST(Task5, Exposed) {
  std::vector<Call> calls;
  std::vector<std::pair<Case, Buckets>> expected;
  for (const Case& c : some_cases(lab::grading::scenario_seed()))
    for (const double cap : {0.0, 300'000.0, 1e9}) {
      const Buckets buckets = buckets_of(c, cap);
      Numbers flat;
      for (const auto& bucket : buckets) {
        flat.push_back(static_cast<double>(bucket.size()));
        flat.insert(flat.end(), bucket.begin(), bucket.end());
      }
      Call call{.scenario = "exposed", .inputs = {input_of(c)}, .name = c.name};
      call.inputs[0].set("buckets", flat);
      calls.push_back(call);
      expected.emplace_back(c, buckets);
    }
  JobOptions options;
  options.network = lab::grading::Network::kNone;
  options.given = {"1"};
  judge_calls(calls, options, [&](size_t k, const std::vector<Parcel>& ranks) {
    const Case& c = expected[k].first;
    const Buckets& buckets = expected[k].second;
    const double all = [&] {
      double bytes = 0;
      for (double size : c.sizes) bytes += size;
      return c.seconds(bytes);
    }();
    lab::grading::expect(
        ranks[0].number("exposed"),
        {.what = "the exposed time",
         .values = {exposed(c, buckets)},
         .tolerance = {1e-9},
         .mistakes = [c, buckets, all] {
           const double end = std::ranges::max(c.ready_at);
           return std::vector<Mistake>{
               {{exposed(c, buckets, {.one_by_one = false})},
                "as if buckets travelled side by side: each starts when the one before it has "
                "arrived"},
               {{exposed(c, buckets, {.starts_late = false})},
                "as if all buckets were there at the beginning: a bucket starts when its last "
                "gradient is ready"},
               {{exposed(c, buckets, {.in_order = false})},
                "as if a bucket could be posted before an earlier one"},
               {{exposed(c, buckets, {.steps = 1})},
                "half of it: an all-reduce is a reduce-scatter and an all-gather, 2(n-1) steps"},
               {{exposed(c, buckets, {.part = false})},
                "each step of a ring moves 1/n of the bucket, not all of it"},
               {{exposed(c, buckets) + end},
                "the time until the last bucket arrives: subtract the backward pass"},
               {{std::max(0.0, all - end)},
                "all messages less the whole backward pass: the last bucket cannot start before "
                "the backward pass has ended"},
               {{all}, "all messages: those that travel during the backward pass are hidden"}};
         }});
  });
}

TEST(Task5, TheBestCapacity) {
  std::vector<Call> calls;
  std::vector<Case> cases;
  std::mt19937_64 random(510 + lab::grading::scenario_seed());
  for (Case c : some_cases(10 + lab::grading::scenario_seed())) {
    for (int k = 0; k < 6; ++k) c.caps.push_back(static_cast<double>(random() % 1'500'000));
    c.caps.push_back(0);
    c.caps.push_back(1e9);
    c.caps.push_back(2e9);  // the same buckets
    std::ranges::shuffle(c.caps, random);
    c.caps.push_back(c.caps[0]);
    Call call{.scenario = "choose", .inputs = {input_of(c)}, .name = c.name};
    call.inputs[0].set("caps", c.caps);
    calls.push_back(call);
    cases.push_back(c);
  }
  JobOptions options;
  options.network = lab::grading::Network::kNone;
  options.given = {"1"};
  judge_calls(calls, options, [&](size_t k, const std::vector<Parcel>& ranks) {
    const Case& c = cases[k];
    const double got = ranks[0].number("cap");
    if (std::ranges::count(c.caps, got) == 0)
      stop(fmt::format("choose_cap returns {}, which is none of the capacities it was given", got));
    double least = exposed(c, buckets_of(c, c.caps[0]));
    for (const double cap : c.caps) least = std::min(least, exposed(c, buckets_of(c, cap)));
    const double chosen = exposed(c, buckets_of(c, got));
    if (chosen > least + 1e-9)
      stop(
          fmt::format("another capacity leaves less exposed\ncapacity {}: {:.3f} ms; the best "
                      "leaves {:.3f} ms",
                      got, 1e3 * chosen, 1e3 * least));
    for (const double cap : c.caps)
      if (cap > got && (c.ranks == 1 || buckets_of(c, cap) == buckets_of(c, got)))
        stop(
            fmt::format("of several capacities that leave equally little the largest is asked "
                        "for\n{} leaves as little as {}",
                        cap, got));
  });
}

}  // namespace
}  // namespace lab08
