// Task 4: groups by host, and an all-reduce that crosses between hosts once per chunk.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include "tests/labs/07_allreduce/reduction.h"

namespace lab07 {
namespace {

using lab::grading::Parcel;

constexpr const char* kFunction = "hierarchical_all_reduce";

std::vector<double> numbered(int first, int step, int count) {
  std::vector<double> ranks;
  for (int i = 0; i < count; ++i) ranks.push_back(first + i * step);
  return ranks;
}

TEST(Task4, GroupsOfTwoHosts) {
  constexpr int kRanks = 6;
  constexpr int kPerHost = 3;
  lab::grading::Call call{.scenario = "hierarchical", .inputs = std::vector<Parcel>(kRanks)};
  for (Parcel& input : call.inputs) {
    input.set("op", 0.0);
    input.set("ranks_per_host", kPerHost);
    input.set("numbers", lab::Tensor::zeros({6}));
  }
  lab::grading::judge_calls(
      {call}, {.network = lab::grading::Network::kSimulated, .given = {"2"}},
      [&](size_t, const std::vector<Parcel>& results) {
        for (int r = 0; r < kRanks; ++r) {
          const auto check = [&](const char* group, const std::vector<double>& expected) {
            const std::vector<double> got = results[static_cast<size_t>(r)].numbers(group);
            if (got != expected)
              lab::grading::stop(
                  fmt::format("rank {}: `{}` consists of ranks {}, not {}\n6 ranks, 3 on each host",
                              r, group, fmt::join(got, ", "), fmt::join(expected, ", ")));
          };
          check("inside", numbered(r / kPerHost * kPerHost, 1, kPerHost));
          check("across", numbered(r % kPerHost, kPerHost, kRanks / kPerHost));
        }
      });
}

TEST(Task4, TwoHostsOfThree) {
  expect_cases({{.function = kFunction, .elements = 12, .telling = true, .ranks_per_host = 3},
                {.function = kFunction, .elements = 50, .ranks_per_host = 3}},
               6, {.network = lab::grading::Network::kSimulated, .given = {"2"}});
}

TEST(Task4, AnyRanksAnyElementsAnyOrder) {
  expect_any_cases({kFunction}, lab::grading::scenario_seed() + 400, {"2"});
}

TEST(Task4, ScratchAndTime) {
  expect_cases({{.function = kFunction, .elements = 120'000, .ranks_per_host = 3},
                {.function = kFunction, .elements = 7, .ranks_per_host = 3}},
               6, timed(3, {"2"}));
  expect_cases({{.function = kFunction, .elements = 800, .ranks_per_host = 4}}, 8, timed(4, {"2"}));
}

TEST(Task4, OverGloo) {
  expect_cases({{.function = kFunction, .elements = 1001, .ranks_per_host = 2}}, 4,
               {.given = {"2"}});
}

}  // namespace
}  // namespace lab07
