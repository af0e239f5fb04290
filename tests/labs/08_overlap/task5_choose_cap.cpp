// Task 5: the time that a backward pass cannot hide, and the capacity that leaves the least of it.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <numeric>
#include <optional>
#include <random>

#include "tests/grading/verdict.h"

namespace lab08::task5 {
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

Buckets buckets_of(const Case& c, double cap, double first_cap) {
  Buckets buckets;
  double filled = 0;
  for (size_t p = c.sizes.size(); p-- > 0;) {
    if (buckets.empty() || filled + c.sizes[p] > (buckets.size() == 1 ? first_cap : cap)) {
      buckets.emplace_back();
      filled = 0;
    }
    buckets.back().push_back(p);
    filled += c.sizes[p];
  }
  return buckets;
}

Buckets buckets_of(const Case& c, double cap) { return buckets_of(c, cap, cap); }

/// How a mistake would count.
struct Way {
  bool in_order = true;       // a bucket is posted after the one before it
  bool one_by_one = true;     // and travels after it
  bool starts_late = true;    // not before it is ready
  double steps = 2;           // times (n - 1)
  bool part = true;           // 1/n of the bytes in each
  bool latency_once = false;  // of the first bucket only
  bool number_first = false;  // the number of targets takes the network first
  /// Of a bucket's parameters.
  enum class Ready { kAll, kFirst, kLast, kLowest } ready = Ready::kAll;
  enum class End { kLatest, kFirstParameter, kLastParameter, kLastBucket } end = End::kLatest;
};

double ready_time(const Case& c, const std::vector<size_t>& bucket, Way::Ready way) {
  if (way == Way::Ready::kFirst) return c.ready_at[bucket.front()];
  if (way == Way::Ready::kLast) return c.ready_at[bucket.back()];
  if (way == Way::Ready::kLowest) return c.ready_at[std::ranges::min(bucket)];
  double ready = 0;
  for (size_t p : bucket) ready = std::max(ready, c.ready_at[p]);
  return ready;
}

double bytes_of(const Case& c, const std::vector<size_t>& bucket) {
  double bytes = 0;
  for (size_t p : bucket) bytes += c.sizes[p];
  return bytes;
}

double exposed(const Case& c, const Buckets& buckets, const Way& way = {}) {
  const auto seconds = [&](double bytes, bool first) {
    const double alpha = way.latency_once && !first ? 0 : c.alpha;
    return way.steps * (c.ranks - 1) * (alpha + c.beta * bytes / (way.part ? c.ranks : 1));
  };
  double posted = 0;
  double arrived = way.number_first ? seconds(4, true) : 0;
  bool first = true;
  for (const auto& bucket : buckets) {
    const double ready = ready_time(c, bucket, way.ready);
    posted = way.in_order ? std::max(posted, ready) : ready;
    const double duration = seconds(bytes_of(c, bucket), first);
    const double start = way.starts_late ? posted : 0;
    arrived =
        way.one_by_one ? std::max(arrived, start) + duration : std::max(arrived, start + duration);
    first = false;
  }
  double end = std::ranges::max(c.ready_at);
  if (way.end == Way::End::kFirstParameter) end = c.ready_at.front();
  if (way.end == Way::End::kLastParameter) end = c.ready_at.back();
  if (way.end == Way::End::kLastBucket) end = posted;
  return way.end == Way::End::kLatest ? std::max(0.0, arrived - end) : arrived - end;
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

std::string arguments_of(const Case& c, const Buckets& buckets) {
  return fmt::format(
      "sizes [{:.9g}] bytes, ready at [{:.6g}] s, buckets {}, alpha {:.9g} s, beta {:.3g} s per "
      "byte, {} ranks",
      fmt::join(c.sizes, ", "), fmt::join(c.ready_at, ", "), buckets, c.alpha, c.beta, c.ranks);
}

/// What the handout's section 2.6 says of buckets of equal size that take equally long.
double as_if_equal(const Case& c, const Buckets& buckets) {
  if (buckets.empty()) return 0;
  double all = 0;
  for (const auto& bucket : buckets) all += c.seconds(bytes_of(c, bucket));
  const double first_ready = ready_time(c, buckets[0], Way::Ready::kAll);
  return std::max(c.seconds(bytes_of(c, buckets.back())),
                  all - std::ranges::max(c.ready_at) + first_ready);
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
  if (number % 3 == 1) std::ranges::shuffle(c.ready_at, random);
  if (number % 3 == 2) std::swap(c.ready_at[0], c.ready_at[count - 1]);
  c.alpha = 1e-4 * below(30);
  c.beta = 1e-9 * (1 + below(40));
  c.ranks = 1 + below(6);
  if (number % 4 >= 2) {  // all of it takes less than a microsecond
    for (double& ready : c.ready_at) ready *= 1e-6;
    c.alpha *= 1e-6;
    c.beta *= 1e-6;
  }
  return c;
}

std::vector<Case> some_cases(uint64_t seed) {
  std::vector<Case> cases{
      {"three buckets by hand", {4000, 4000, 4000}, {3e-3, 2e-3, 1e-3}, 1e-4, 1e-6, 2},
      {"two buckets of two, in which the first is ready last",
       {4000, 4000, 4000, 4000},
       {3e-3, 4e-3, 1e-3, 2e-3},
       1e-4,
       1e-6,
       2},
      {"a fast network", {4000, 4000, 4000}, {3e-3, 2e-3, 1e-3}, 0, 1e-9, 3},
      // One bucket would leave less, but no capacity makes one.
      {"a slow network", {4000, 4000, 4000}, {3e-3, 2e-3, 1e-3}, 1e-2, 1e-6, 4, {0, 8000, 4000}},
      {"one rank", {4000, 4000, 4000}, {3e-3, 2e-3, 1e-3}, 1e-2, 1e-6, 1},
      {"the last parameter is the last to be ready", {8, 8, 8}, {1e-3, 2e-3, 9e-3}, 1e-3, 0, 2},
      {"gradients without elements", {4000, 0, 0, 4000}, {4e-3, 3e-3, 2e-3, 1e-3}, 1e-3, 1e-7, 3},
      {"a gain of a ten-billionth", {4000, 4000}, {1e-3 + 1e-12, 1e-3}, 0, 1e-6, 2, {8000, 4000}},
      {"more than 4 GB", {3e9, 3e9, 3e9}, {3, 2, 1}, 1e-3, 1e-10, 2},
      {"messages that take more than a minute",
       {4000, 8000, 4000, 8000},
       {4, 3, 2, 1},
       20,
       1e-9,
       3},
      {"half as many messages take 0.02 % longer",
       {4000, 4000},
       {2e-3, 1e-3},
       4.999e-4,
       1e-9,
       2,
       {0, 8000}},
      {"the same, the largest capacity first",
       {4000, 4000},
       {2e-3, 1e-3},
       4.999e-4,
       1e-9,
       2,
       {8000, 0}},
      {"half as many messages take longer by less than floats can tell",
       {4000, 4000},
       {2e-3, 1e-3},
       4.99999995e-4,
       1e-9,
       2,
       {0, 8000}}};
  std::mt19937_64 random(500 + seed);
  for (int k = 0; k < 12; ++k) cases.push_back(draw(random, k));
  return cases;
}

/// What plausible mistakes would return.
std::vector<Mistake> mistakes(const Case& c, const Buckets& buckets) {
  const double all = c.seconds(std::accumulate(c.sizes.begin(), c.sizes.end(), 0.0));
  const double end = std::ranges::max(c.ready_at);
  return std::vector<Mistake>{
      {{-end}, "minus the time of the backward pass: without buckets nothing is exposed"},
      {{exposed(c, buckets, {.one_by_one = false})},
       "as if buckets travelled side by side: each starts when the one before it has arrived"},
      {{exposed(c, buckets, {.starts_late = false})},
       "as if all buckets were there at the beginning: a bucket starts when its last gradient is "
       "ready"},
      {{exposed(c, buckets, {.in_order = false})},
       "as if a bucket could be posted before an earlier one"},
      {{exposed(c, buckets, {.in_order = false, .end = Way::End::kLastBucket})},
       "counted from when the last bucket was ready: it is posted after all earlier ones"},
      {{exposed(c, buckets, {.end = Way::End::kFirstParameter})},
       "counted from when parameter 0 was ready: the backward pass ends with whichever gradient is "
       "the last"},
      {{exposed(c, buckets, {.end = Way::End::kLastParameter})},
       "counted from when the last parameter was ready: the backward pass ends with whichever "
       "gradient is the last"},
      {{exposed(c, buckets, {.ready = Way::Ready::kLast, .end = Way::End::kLastBucket})},
       "as if a bucket were complete with the last of its parameters: it is complete with the one "
       "that is ready last"},
      {{exposed(c, buckets, {.ready = Way::Ready::kLowest, .end = Way::End::kLastBucket})},
       "as if a bucket were complete with its lowest parameter: it is complete with the one that "
       "is ready last"},
      {{exposed(c, buckets, {.ready = Way::Ready::kFirst})},
       "as if a bucket were complete with the first of its parameters: it is complete with the "
       "last of them to be ready"},
      {{exposed(c, buckets, {.ready = Way::Ready::kLast})},
       "as if a bucket were complete with the last of its parameters: it is complete with the one "
       "that is ready last"},
      {{exposed(c, buckets, {.latency_once = true})},
       "the latency of the first bucket only: every all-reduce pays it"},
      {{exposed(c, buckets, {.number_first = true})},
       "the message with the number of targets is counted: leave it out"},
      {{exposed(c, buckets, {.steps = 1 / std::max(1.0, c.ranks - 1), .part = false})},
       "as if an all-reduce were one message: it takes network.seconds(bytes), 2(n-1) steps of 1/n "
       "of them"},
      {{1e3 * exposed(c, buckets)}, "in ms, not in seconds"},
      {{exposed(c, buckets, {.steps = 1})},
       "half of it: an all-reduce is a reduce-scatter and an all-gather, 2(n-1) steps"},
      {{exposed(c, buckets, {.part = false})},
       "each step of a ring moves 1/n of the bucket, not all of it"},
      {{exposed(c, buckets) + end},
       "the time until the last bucket arrives: subtract the backward pass"},
      {{std::max(0.0, all - end)},
       "all messages less the whole backward pass: the last bucket cannot start before the "
       "backward pass has ended"},
      {{all}, "all messages: those that travel during the backward pass are hidden"},
      {{as_if_equal(c, buckets)},
       "2.6's formula for equal buckets: these need not be equal, so go from bucket to bucket"}};
}

TEST(Task5, Exposed) {
  std::vector<Call> calls;
  std::vector<std::pair<Case, Buckets>> expected;
  const auto add = [&](const Case& c, const Buckets& buckets) {
    Numbers flat;
    for (const auto& bucket : buckets) {
      flat.push_back(static_cast<double>(bucket.size()));
      flat.insert(flat.end(), bucket.begin(), bucket.end());
    }
    Call call{.scenario = "exposed", .inputs = {input_of(c)}, .name = c.name};
    call.inputs[0].set("buckets", flat);
    calls.push_back(call);
    expected.emplace_back(c, buckets);
  };
  for (const Case& c : some_cases(lab::grading::scenario_seed()))
    for (const double part : {0.0, 0.3, 0.6, 1.0})
      add(c, buckets_of(c, part * std::accumulate(c.sizes.begin(), c.sizes.end(), 0.0)));
  add({"no buckets", {4000, 4000}, {2e-3, 1e-3}, 1e-4, 1e-6, 2}, {});
  JobOptions options;
  options.network = lab::grading::Network::kNone;
  options.given = {"1"};
  judge_calls(calls, options, [&](size_t k, const std::vector<Parcel>& ranks) {
    const Case& c = expected[k].first;
    const Buckets& buckets = expected[k].second;
    lab::grading::expect(ranks[0].number("exposed"),
                         {.what = "the exposed time",
                          .values = {exposed(c, buckets)},
                          .tolerance = {1e-9},
                          .name = [&](size_t) { return arguments_of(c, buckets); },
                          .mistakes = [&] { return mistakes(c, buckets); }});
  });
}

/// `first_cap`: of the first bucket, if it is another.
double best_of(const Case& c, std::optional<double> first_cap = {}) {
  const auto left = [&](double cap) {
    return exposed(c, buckets_of(c, cap, first_cap.value_or(cap)));
  };
  double best = c.caps[0];
  for (const double cap : c.caps)
    if (const double less = left(best) - left(cap); less > 0 || (less == 0 && cap > best))
      best = cap;
  return best;
}

/// The capacities in rising order, until one leaves more than the one before.
double best_until_worse(const Case& c) {
  const auto left = [&](double cap) { return exposed(c, buckets_of(c, cap)); };
  Numbers caps = c.caps;
  std::ranges::sort(caps);
  double best = caps[0];
  for (const double cap : caps) {
    if (left(cap) > left(best)) break;
    best = cap;
  }
  return best;
}

/// Why `cap` may have been chosen, although another one leaves less exposed.
std::string reason_of(const Case& c, double cap) {
  const double best = best_of(c);
  constexpr double kLittle = 1e-5;
  if (cap > best && exposed(c, buckets_of(c, cap)) - exposed(c, buckets_of(c, best)) < kLittle)
    return ": a larger one is better only if both leave exactly the same time exposed";
  const Numbers firsts = {0, 1 << 20, std::ranges::min(c.caps)};
  if (std::ranges::any_of(firsts, [&](double first) { return cap == best_of(c, first); }))
    return ": does the first bucket have the same capacity as the others?";
  if (cap == best_until_worse(c))
    return ": after a capacity that leaves more exposed, a larger one may leave less again";
  return "";
}

TEST(Task5, TheBestCapacity) {
  std::vector<Call> calls;
  std::vector<Case> cases;
  std::mt19937_64 random(510 + lab::grading::scenario_seed());
  for (const Case& drawn : some_cases(10 + lab::grading::scenario_seed())) {
    Case c = drawn;
    if (!c.caps.empty()) {
      // Those of the case.
    } else if (c.alpha == 0) {
      c.caps = {std::accumulate(c.sizes.begin(), c.sizes.end(), 0.0), 0, 4e10};  // 0 is best
    } else if (cases.size() % 2 == 1) {
      c.caps = cases.back().caps;  // the same for another model and network
    } else {
      const double all = std::accumulate(c.sizes.begin(), c.sizes.end(), 0.0);
      // If they can be found, those in which a worse one comes before the best.
      for (int tries = 0; tries < 100 && (c.caps.empty() || best_until_worse(c) == best_of(c));
           ++tries) {
        c.caps.clear();
        for (int k = 0; k < 6; ++k)
          c.caps.push_back(std::floor(all * static_cast<double>(random() % 1000) / 1000));
      }
      for (const double cap : {0.0, 2e10, 4e10}) c.caps.push_back(cap);  // two: the same buckets
      c.caps.push_back(c.caps[random() % c.caps.size()]);
      std::ranges::shuffle(c.caps, random);
      // The best one is also the first, or the last.
      const auto best = std::ranges::find(c.caps, best_of(c));
      std::iter_swap(best, cases.size() % 4 == 0 ? c.caps.begin() : std::prev(c.caps.end()));
    }
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
    constexpr double kRounding = 1e-13;  // of the times that are added up
    if (chosen > least + kRounding * (least + std::ranges::max(c.ready_at)))
      stop(
          fmt::format("another capacity leaves less exposed{}\ncapacity {}: {:.9g} ms; the best, "
                      "{}, leaves {:.9g} ms",
                      reason_of(c, got), got, 1e3 * chosen, best_of(c), 1e3 * least));
    for (const double cap : c.caps)
      if (cap > got && (c.ranks == 1 || buckets_of(c, cap) == buckets_of(c, got)))
        stop(
            fmt::format("of several capacities that leave equally little, choose_cap must return "
                        "the largest\n{} leaves as little as {}",
                        cap, got));
  });
}

}  // namespace
}  // namespace lab08::task5
