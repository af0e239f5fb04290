// Task 1: buckets by capacity, from the last parameter to the first.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "tests/grading/verdict.h"

namespace lab08::task1 {
namespace {

using lab::grading::Call;
using lab::grading::Numbers;
using lab::grading::Parcel;
using lab::grading::stop;

using Buckets = std::vector<std::vector<size_t>>;

struct Case {
  std::string name;
  std::vector<int64_t> sizes;
  int64_t cap = 0;
  int64_t first_cap = 0;
};

Buckets expected(const Case& c) {
  Buckets buckets;
  int64_t left = 0;
  for (size_t p = c.sizes.size(); p-- > 0;) {
    if (buckets.empty() || c.sizes[p] > left) {
      left = buckets.empty() ? c.first_cap : c.cap;
      buckets.emplace_back();
    }
    buckets.back().push_back(p);
    left -= c.sizes[p];
  }
  return buckets;
}

Buckets read(const Numbers& numbers) {
  Buckets buckets;
  for (size_t i = 0; i < numbers.size();) {
    auto length = static_cast<size_t>(numbers[i++]);
    buckets.emplace_back();
    for (; length > 0; --length) buckets.back().push_back(static_cast<size_t>(numbers[i++]));
  }
  return buckets;
}

int64_t bytes(const Case& c, const std::vector<size_t>& bucket) {
  int64_t sum = 0;
  for (size_t p : bucket) sum += c.sizes[p];
  return sum;
}

/// The property that the buckets lack; empty if they have all.
std::string broken_property(const Case& c, const Buckets& got) {
  std::vector<int> times(c.sizes.size(), 0);
  std::vector<size_t> order;
  for (const auto& bucket : got) {
    if (bucket.empty()) return "there is an empty bucket: it would be a message without numbers";
    for (size_t p : bucket) {
      if (p >= c.sizes.size())
        return fmt::format("there is no parameter {}: they count from 0 to {}", p,
                           c.sizes.size() - 1);
      ++times[p];
      order.push_back(p);
    }
  }
  for (size_t p = 0; p < times.size(); ++p)
    if (times[p] != 1)
      return fmt::format("parameter {} is in {} buckets: every gradient travels exactly once", p,
                         times[p]);
  if (std::ranges::is_sorted(order) && order.size() > 1)
    return "from the first parameter to the last: the backward pass completes the last one first, "
           "so the first bucket would be the last to be ready";
  if (!std::ranges::is_sorted(order, std::greater{}))
    return "the parameters are not in the order from the last to the first";
  for (size_t b = 0; b < got.size(); ++b) {
    const int64_t cap = b == 0 ? c.first_cap : c.cap;
    if (got[b].size() > 1 && bytes(c, got[b]) > cap)
      return fmt::format(
          "bucket {} holds {} bytes, more than its capacity of {}: check before you add a "
          "parameter, not after; only a bucket of a single parameter may be larger",
          b, bytes(c, got[b]), cap);
    if (b + 1 < got.size() && bytes(c, got[b]) + c.sizes[got[b + 1][0]] <= cap)
      return fmt::format(
          "bucket {} is closed too early: parameter {} would still fit into its "
          "capacity of {}",
          b, got[b + 1][0], cap);
  }
  return "";
}

/// Says so if the buckets are right for other capacities.
std::string mixed_up_capacities(const Case& c, const Buckets& got) {
  const auto as_if = [&](int64_t cap, int64_t first_cap) {
    return got == expected({.name = "", .sizes = c.sizes, .cap = cap, .first_cap = first_cap});
  };
  if (as_if(c.cap, c.cap))
    return "the first bucket has the capacity of the others: its own is first_cap_bytes";
  if (as_if(c.first_cap, c.first_cap))
    return "all buckets have the first one's capacity: that of the others is cap_bytes";
  if (as_if(c.first_cap, c.cap))
    return "capacities mixed up: first_cap_bytes is the first bucket's, cap_bytes the others'";
  return "";
}

void expect_buckets(const std::vector<Case>& cases) {
  std::vector<Call> calls;
  for (const Case& c : cases) {
    Call call{.scenario = "assign", .inputs = std::vector<Parcel>(1), .name = c.name};
    call.inputs[0].set("sizes", Numbers(c.sizes.begin(), c.sizes.end()));
    call.inputs[0].set("cap", static_cast<double>(c.cap));
    call.inputs[0].set("first_cap", static_cast<double>(c.first_cap));
    calls.push_back(call);
  }
  judge_calls(
      calls, {.network = lab::grading::Network::kNone},
      [&](size_t k, const std::vector<Parcel>& ranks) {
        const Case& c = cases[k];
        const Buckets got = read(ranks[0].numbers("buckets"));
        const Buckets right = expected(c);
        if (got == right) return;
        std::string why = mixed_up_capacities(c, got);
        if (why.empty()) why = broken_property(c, got);
        stop(fmt::format("{}\nsizes {}, capacity {}, of the first bucket {}: got {}, expected {}",
                         why.empty() ? "other buckets than the contract's" : why, c.sizes, c.cap,
                         c.first_cap, got, right));
      });
}

TEST(Task1, ByHand) {
  expect_buckets({{"five parameters", {3, 5, 4, 9, 2}, 9, 9},
                  {"a small first bucket", {4, 4, 4, 4, 4, 4}, 12, 4},
                  {"one larger than the capacity", {2, 30, 2, 2}, 8, 8},
                  {"exactly full", {4, 4, 8, 4, 4}, 8, 8},
                  {"the same with a smaller first bucket", {4, 4, 8, 4, 4}, 8, 4}});
}

TEST(Task1, Extremes) {
  expect_buckets({{"capacity 0", {4, 8, 4}, 0, 0},
                  {"only the first one 0", {4, 8, 4}, 100, 0},
                  {"only the others 0", {4, 8, 4, 4}, 0, 8},
                  {"everything in one bucket", {4, 8, 4}, 1000, 1000},
                  {"everything in the first bucket", {4, 8, 4}, 0, 1000},
                  {"one parameter", {12}, 4, 4},
                  {"no parameter", {}, 4, 4},
                  {"more than 4 GB", {3'000'000'000, 3'000'000'000, 8}, 6'000'000'000, 10},
                  {"more digits than a float has", {1, 16'777'216, 8}, 16'777'216, 8},
                  {"parameters without elements", {4, 0, 8, 0, 12, 0}, 8, 0},
                  {"nothing but parameters without elements", {0, 0, 0}, 0, 0}});
}

TEST(Task1, Drawn) {
  std::mt19937_64 random(100 + lab::grading::scenario_seed());
  std::vector<Case> cases;
  for (int k = 0; k < 30; ++k) {
    Case c{.name = fmt::format("drawn, number {}", k), .sizes = {}};
    const size_t count = 1 + random() % 15;
    const int64_t unit =
        k % 3 == 2 ? 400'000'000 : 4;  // bytes: sums of the large ones need 64 bits
    const auto below = [&](uint64_t limit) { return static_cast<int64_t>(random() % limit); };
    for (size_t p = 0; p < count; ++p) c.sizes.push_back(unit * (1 + below(12)));
    c.cap = unit * below(40);
    c.first_cap = unit * below(20);
    cases.push_back(c);
    std::ranges::shuffle(c.sizes, random);
    c.name += ", other sizes";
    cases.push_back(c);
  }
  expect_buckets(cases);
}

}  // namespace
}  // namespace lab08::task1
