// What a judge may demand of the numbers that ranks returned.
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "common/comm/diagnosis/describe.h"
#include "common/error.h"
#include "tests/grading/verdict.h"
#include "tests/grading/verdict_session.h"

namespace lab::grading {
namespace {

std::string right_ranks_in_words(std::vector<int> ranks) {
  std::ranges::sort(ranks);
  return ranks.empty() ? "" : "\nright on " + list_ranks(ranks);
}

}  // namespace

void expect(const std::vector<double>& got, const Expected& expected) {
  const std::string message = difference(got, expected);
  if (!message.empty()) stop(message);
}

void expect(double got, const Expected& expected) { expect(std::vector{got}, expected); }

void expect_on_every_rank(const std::vector<std::vector<double>>& got,
                          const std::function<Expected(size_t)>& expected,
                          const std::function<std::string(size_t)>& details, Blame blame) {
  std::string message;
  std::vector<int> right;
  for (size_t i = 0; i < got.size(); ++i) {
    const size_t rank = blame == Blame::kFirstRank ? i : got.size() - 1 - i;
    const std::string wrong = difference(got[rank], expected(rank));
    if (wrong.empty())
      right.push_back(static_cast<int>(rank));
    else if (message.empty())
      message = fmt::format("{}{}{}", got.size() == 1 ? "" : fmt::format("rank {}: ", rank), wrong,
                            details ? "\n" + details(rank) : "");
  }
  if (!message.empty()) stop(message + right_ranks_in_words(right));
}

void expect_same_bits(const std::vector<std::vector<double>>& got, const std::string& what) {
  for (size_t rank = 1; rank < got.size(); ++rank)
    for (size_t i = 0; i < got[0].size(); ++i)
      if (got[rank].size() != got[0].size() || got[rank][i] != got[0][i])
        stop(fmt::format(
            "{} of rank {} and of rank 0 are not the same to the last bit, and the ranks drift "
            "apart: does each of them compute it from the same numbers, in the same order?\n"
            "element {}: rank 0 has {}, rank {} has {}",
            what, rank, i, got[0][i], rank, got[rank].size() > i ? got[rank][i] : 0.0));
}

void confirm_bits(const std::vector<double>& got, const std::vector<double>& oracle,
                  const std::string& what) {
  if (got == oracle) return;
  require(settings().implementation != "solution",
          "{}: the solution and one process differ in their last bits", what);
  note(what + ": right, though not in the contracted order: the last bits differ");
}

std::vector<std::vector<double>> tensors_of(const std::vector<Parcel>& ranks,
                                            const std::string& entry) {
  std::vector<std::vector<double>> all;
  for (const Parcel& rank : ranks) all.push_back(to_doubles(rank.tensor(entry)));
  return all;
}

std::vector<std::vector<double>> numbers_of(const std::vector<Parcel>& ranks,
                                            const std::string& entry) {
  std::vector<std::vector<double>> all;
  for (const Parcel& rank : ranks) all.push_back(rank.numbers(entry));
  return all;
}

}  // namespace lab::grading
