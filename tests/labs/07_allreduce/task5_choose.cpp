// Task 5: the times of the contract, and the best of them.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <random>

#include "tests/labs/07_allreduce/reduction.h"

namespace lab07 {
namespace {

using lab::CostModel;
using lab::grading::Numbers;
using lab::grading::Parcel;

constexpr std::array<const char*, 4> kNames = {"reduce_at_root", "ring_all_reduce",
                                               "doubling_all_reduce", "hierarchical_all_reduce"};

struct Question {
  int ranks = 3;
  int64_t elements = 1;
  CostModel costs;
};

Numbers answer_of(const Question& q) {
  CostModel flat = q.costs;  // what an algorithm pays that knows nothing of hosts
  const int per_host = q.costs.ranks_per_host == 0 ? q.ranks : q.costs.ranks_per_host;
  if (per_host < q.ranks) flat.inside = flat.between;
  Numbers seconds;
  for (const char* name : kNames) {
    const Case c{.function = name, .elements = q.elements, .ranks_per_host = per_host};
    const bool knows_hosts = std::string(name) == "hierarchical_all_reduce";
    seconds.push_back(seconds_of(c, q.ranks, knows_hosts ? q.costs : flat));
  }
  return seconds;
}

std::string in_words(const Question& q) {
  return fmt::format(
      "{} ranks, {} elements, alpha {:g} s and beta {:g} s per byte inside, {:g} and {:g} between, "
      "{} ranks per host, gamma {:g} s",
      q.ranks, q.elements, q.costs.inside.alpha, q.costs.inside.beta, q.costs.between.alpha,
      q.costs.between.beta, q.costs.ranks_per_host, q.costs.gamma);
}

void judge(const Question& q, const Parcel& result) {
  constexpr double kTolerance = 1e-9;
  const Numbers got = result.numbers("seconds");
  const Numbers right = answer_of(q);
  for (size_t i = 0; i < right.size(); ++i)
    if (!(std::abs(got[i] - right[i]) <= kTolerance * right[i]))
      lab::grading::stop(fmt::format("the time of {}: expected {:.6g} s, got {:.6g} s\n{}",
                                     kNames.at(i), right[i], got[i], in_words(q)));
  const auto best = static_cast<size_t>(result.number("best"));
  const double least = *std::ranges::min_element(right);
  if (best >= right.size() || right[best] > least * (1 + kTolerance))
    lab::grading::stop(
        fmt::format("the times are right, but `best` is not the fastest\n{}", in_words(q)));
  if (std::ranges::min_element(right) - right.begin() < static_cast<std::ptrdiff_t>(best) &&
      right[best] == least)
    lab::grading::stop(
        fmt::format("of equally fast algorithms, `best` is the first\n{}", in_words(q)));
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
  for (const int ranks : {4, 3, 1, 2, 6, 7, 8, 16, 33, 64})
    for (const int64_t elements : {int64_t{0}, int64_t{1}, int64_t{1000}, int64_t{1} << 32})
      questions.push_back({ranks, elements, {.inside = kFast, .between = kSlow, .gamma = 1e-10}});
  expect_answers(questions);
}

TEST(Task5, SeveralHosts) {
  std::vector<Question> questions;
  for (const auto& [ranks, per_host] :
       {std::pair{6, 3}, {6, 2}, {6, 6}, {6, 1}, {8, 4}, {64, 8}, {12, 3}})
    for (const int64_t elements : {1, 10, 100'001})
      questions.push_back(
          {ranks,
           elements,
           {.inside = kFast, .between = kSlow, .ranks_per_host = per_host, .gamma = 3e-10}});
  expect_answers(questions);
}

TEST(Task5, AnyCosts) {
  std::mt19937_64 random(lab::grading::scenario_seed() + 500);
  const auto draw = [&](double low, double high) {
    return std::uniform_real_distribution<double>(low, high)(random);
  };
  std::vector<Question> questions;
  for (int k = 0; k < 60; ++k) {
    const int per_host = static_cast<int>(random() % 8) + 1;
    const int ranks = per_host * (static_cast<int>(random() % 8) + 1);
    questions.push_back({ranks,
                         static_cast<int64_t>(random() % 1'000'000),
                         {.inside = {draw(0, 1e-5), draw(0, 1e-8)},
                          .between = {draw(0, 1e-4), draw(0, 1e-7)},
                          .ranks_per_host = k % 4 == 0 ? 0 : per_host,
                          .gamma = draw(0, 1e-9)}});
  }
  expect_answers(questions);
}

}  // namespace
}  // namespace lab07
