// Task 5a: random sets of clients.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>

#include "tests/grading/verdict.h"

namespace lab11::task5a {
namespace {

using lab::grading::Call;
using lab::grading::Parcel;
using lab::grading::stop;

using Arguments = std::array<int64_t, 4>;  // clients, count, seed, round
using Sets = std::vector<std::vector<int64_t>>;

Call call_of(const std::string& name, const std::vector<Arguments>& cases) {
  Call call{.scenario = "sample", .inputs = std::vector<Parcel>(1), .name = name};
  std::vector<double> numbers;
  for (const Arguments& c : cases)
    for (const int64_t number : c) numbers.push_back(static_cast<double>(number));
  call.inputs[0].set("cases", numbers);
  return call;
}

Sets read(const std::vector<double>& numbers) {
  Sets sets;
  for (size_t i = 0; i < numbers.size();) {
    auto length = static_cast<size_t>(numbers[i++]);
    sets.emplace_back();
    for (; length > 0; --length) sets.back().push_back(static_cast<int64_t>(numbers[i++]));
  }
  return sets;
}

void judge_set(const Arguments& c, const std::vector<int64_t>& set) {
  const auto& [clients, count, seed, round] = c;
  const std::string where =
      fmt::format("\nsample_clients({}, {}, {}, {}) returns {}", clients, count, seed, round, set);
  for (const int64_t client : set)
    if (client < 0 || client >= clients)
      stop(fmt::format("there is no client {}: they count from 0 to {}{}", client, clients - 1,
                       where));
  if (count > clients && static_cast<int64_t>(set.size()) != clients)
    stop(
        fmt::format("{} clients are asked for, but there are only {}: all of them must take part{}",
                    count, clients, where));
  if (std::set<int64_t>(set.begin(), set.end()).size() != set.size())
    stop("a client is in the set twice: draw without putting back" + where);
  if (static_cast<int64_t>(set.size()) != std::min(clients, count))
    stop(fmt::format("{} clients, expected {}{}", set.size(), std::min(clients, count), where));
  if (!std::ranges::is_sorted(set)) stop("the clients are not in ascending order" + where);
}

Sets judged(const std::string& name, const std::vector<Arguments>& cases) {
  Sets sets;
  lab::grading::judge_calls(
      {call_of(name, cases), call_of(name + ", again", cases)},
      {.network = lab::grading::Network::kNone}, [&](size_t k, const std::vector<Parcel>& ranks) {
        const Sets got = read(ranks[0].numbers("sets"));
        for (size_t i = 0; i < cases.size(); ++i) judge_set(cases[i], got.at(i));
        if (k == 0) sets = got;
        if (got != sets) stop("the same arguments give another set: a round could not be repeated");
      });
  const std::vector<Parcel> fresh = run_call(call_of(name + ", in another process", cases),
                                             {.network = lab::grading::Network::kNone});
  if (read(fresh[0].numbers("sets")) != sets)
    stop(
        "the same arguments give another set in another process: is the generator made of seed and "
        "round alone?");
  return sets;
}

TEST(Task5a, SetsOfAnySize) {
  std::vector<Arguments> cases = {{10, 3, 1, 1}, {10, 10, 1, 2},   {10, 12, 1, 3},
                                  {10, 4, 1, 3},  // of equal seed and round
                                  {13, 4, 1, 3}, {1, 1, 1, 4},     {5, 0, 1, 5},
                                  {0, 3, 1, 6},  {1000, 40, 7, 8}, {2, 1, 3, 1'000'000}};
  // All but one: drawing until so many different ones are there may take long.
  for (int64_t round = 0; round < 300; ++round) cases.push_back({12, 11, 1, round});
  cases.push_back({300, 299, 1, 7});
  judged("sizes", cases);
}

/// How often each set of `count` appears, against what is expected: chi-square by degrees of
/// freedom and its standard deviation, so that a right solution fails once in millions.
void expect_uniform(const Sets& sets, size_t possible, const std::string& over) {
  std::map<std::vector<int64_t>, double> seen;
  for (const auto& set : sets) seen[set] += 1;
  const double expected = static_cast<double>(sets.size()) / static_cast<double>(possible);
  double chi = static_cast<double>(possible - seen.size()) * expected;
  for (const auto& [set, times] : seen) chi += (times - expected) * (times - expected) / expected;
  const auto freedom = static_cast<double>(possible - 1);
  if (seen.size() == 1)
    stop(fmt::format("the same clients, {}, in all of {} {}: is the {} used?", sets[0], sets.size(),
                     over, over == "rounds" ? "round" : "seed"));
  if (chi <= freedom + 6 * std::sqrt(2 * freedom)) return;
  std::map<int64_t, double> clients;
  for (const auto& set : sets)
    for (const int64_t client : set) clients[client] += 1;
  std::vector<std::string> counts;
  for (const auto& [client, times] : clients)
    counts.push_back(fmt::format("{}: {}", client, times));
  stop(fmt::format(
      "some sets come more often than others\nover {} {}, {} of {} possible sets occur; "
      "how often each client takes part: {}",
      sets.size(), over, seen.size(), possible, fmt::join(counts, ", ")));
}

TEST(Task5a, EverySetIsAsLikely) {
  std::vector<Arguments> rounds, seeds;
  for (int64_t k = 0; k < 3000; ++k) {
    rounds.push_back({6, 3, static_cast<int64_t>(lab::grading::scenario_seed()), k});
    seeds.push_back({5, 2, k + 1, 3});
  }
  expect_uniform(judged("rounds", rounds), 20, "rounds");
  expect_uniform(judged("seeds", seeds), 10, "seeds");
}

/// One client of several, and all but one.
TEST(Task5a, EveryOneAndEveryAllButOne) {
  const auto seed = static_cast<int64_t>(lab::grading::scenario_seed());
  std::vector<Arguments> one, all_but_one;
  for (int64_t round = 0; round < 3000; ++round) {
    one.push_back({7, 1, seed, round});
    all_but_one.push_back({6, 5, seed, round});
  }
  expect_uniform(judged("five of six", all_but_one), 6, "rounds");
  const Sets ones = judged("one of seven", one);
  expect_uniform(ones, 7, "rounds");
  Sets pairs;
  for (size_t k = 1; k < ones.size(); ++k) pairs.push_back({ones[k - 1][0], ones[k][0]});
  expect_uniform(pairs, 49, "pairs of successive rounds");
}

TEST(Task5a, EveryClientOfMany) {
  std::vector<Arguments> cases;
  for (int64_t k = 0; k < 4000; ++k) cases.push_back({300, 30, k, k % 7});
  std::vector<double> times(300, 0.0);
  for (const auto& set : judged("many clients", cases))
    for (const int64_t client : set) times[static_cast<size_t>(client)] += 1;
  const double expected = 400;
  double chi = 0;  // 299 degrees of freedom
  for (const double count : times)
    chi += (count - expected) * (count - expected) / (expected * 0.9);
  if (chi < 299 + 6 * std::sqrt(2.0 * 299)) return;
  const auto [least, most] = std::ranges::minmax_element(times);
  stop(fmt::format(
      "some clients take part more often than others\nin 4000 samples of 30 of 300 clients, client "
      "{} takes part {} times and client {} {} times; expected about {}",
      least - times.begin(), *least, most - times.begin(), *most, expected));
}

/// More clients than a generator of 15 bits can tell apart.
TEST(Task5a, EveryPartOfManyThousands) {
  constexpr int64_t kClients = 20'000, kParts = 10;
  std::vector<Arguments> cases;
  for (int64_t k = 0; k < 400; ++k) cases.push_back({kClients, 50, k, k % 7});
  std::vector<double> times(kParts, 0.0);
  for (const auto& set : judged("thousands of clients", cases))
    for (const int64_t client : set) times[static_cast<size_t>(client * kParts / kClients)] += 1;
  constexpr double kExpected = 400.0 * 50 / kParts;
  double chi = 0;  // 9 degrees of freedom
  for (const double count : times) chi += (count - kExpected) * (count - kExpected) / kExpected;
  if (chi > 9 + 9 * std::sqrt(2.0 * 9))
    stop(fmt::format(
        "some clients take part more often than others\nin 400 samples of 50 of {} clients, the "
        "tenths of the clients take part {} times; expected about {} each",
        kClients, times, kExpected));
}

/// `sets` are those of `cases`, too large to be equal by chance.
void expect_no_repetition(const std::vector<Arguments>& cases, const Sets& sets,
                          const std::string& why) {
  std::map<std::vector<int64_t>, Arguments> seen;
  for (size_t k = 0; k < cases.size(); ++k) {
    const auto [first, is_new] = seen.emplace(sets[k], cases[k]);
    const auto [clients, count, seed, round] = first->second;
    if (!is_new)
      stop(fmt::format("round {} of seed {} has the clients of round {} of seed {}: {}",
                       cases[k][3], cases[k][2], round, seed, why));
  }
}

constexpr char kMixed[] =
    "seed and round must not be added up, nor mixed in another way that gives two seeds the same "
    "numbers";

TEST(Task5a, SeedsDoNotRepeatEachOther) {
  std::vector<Arguments> cases;
  for (int64_t seed = 0; seed < 40; ++seed) {
    for (int64_t round = 0; round < 40; ++round) cases.push_back({60, 30, seed, round});
    // Late rounds: a seed must not be that many rounds of another.
    for (const int64_t round : {100, 256, 1000, 1024, 4096, 10'000, 65'536, 100'000, 1'000'000})
      cases.push_back({60, 30, seed, round});
    // Factors of well-known hash functions and generators, too large for the next test.
    for (const int64_t round :
         std::initializer_list<int64_t>{0x9E3779B9, 0x9E3779B1, 0x85EBCA6B, 0xC2B2AE35, 0x5BD1E995,
                                        0x41C64E6D, 0x7FFFFFFF, 0xFFFFFFFB})
      cases.push_back({60, 30, seed, round});
  }
  expect_no_repetition(cases, judged("40 seeds", cases), kMixed);
}

/// Numbers that differ in one bit or one digit: what forgets a part of seed or round takes some of
/// them for the same.
TEST(Task5a, EveryBitOfSeedAndRoundCounts) {
  std::set<int64_t> numbers = {0, 1, 2, 3, 100, 1'000'003};
  for (int bit = 2; bit < 32; ++bit) {
    numbers.insert(int64_t{1} << bit);
    numbers.insert((int64_t{1} << bit) + 1);
  }
  for (int64_t ten = 10; ten < int64_t{1} << 32; ten *= 10) numbers.insert(ten);
  std::vector<Arguments> cases;
  for (const int64_t number : numbers)
    for (const int64_t other : {0, 1, 2, 3}) {
      cases.push_back({60, 30, number, other});
      if (number > 3) cases.push_back({60, 30, other, number});
    }
  expect_no_repetition(cases, judged("seeds and rounds far apart", cases),
                       "every bit of both must count, each for itself; std::seed_seq takes them "
                       "one after the other");
}

/// Finds a lag below 2^28 for which round r of one seed is round r + lag of the other, by baby
/// steps and giant steps: among 2^14 successive rounds r, one has an r + lag that is a multiple of
/// 2^14.
TEST(Task5a, NoSeedIsAnotherSomeRoundsLater) {
  constexpr int64_t kSteps = 1 << 14;
  const auto seed = static_cast<int64_t>(lab::grading::scenario_seed());
  std::vector<Arguments> cases;
  for (int64_t k = 0; k < kSteps; ++k) cases.push_back({60, 30, seed + 1, k});
  for (int64_t k = 0; k <= kSteps; ++k) cases.push_back({60, 30, seed, k * kSteps});
  const std::vector<Parcel> ranks = run_call(call_of("a row of rounds, and every 16384th", cases),
                                             {.network = lab::grading::Network::kNone});
  const Sets sets = read(ranks[0].numbers("sets"));
  std::map<std::vector<int64_t>, int64_t> rounds;
  for (size_t k = 0; k < static_cast<size_t>(kSteps); ++k) rounds.emplace(sets.at(k), cases[k][3]);
  for (size_t k = static_cast<size_t>(kSteps); k < cases.size(); ++k)
    if (const auto same = rounds.find(sets.at(k)); same != rounds.end())
      stop(fmt::format("round {} of seed {} has the clients of round {} of seed {}: {}",
                       cases[k][3], seed, same->second, seed + 1, kMixed));
}

}  // namespace
}  // namespace lab11::task5a
