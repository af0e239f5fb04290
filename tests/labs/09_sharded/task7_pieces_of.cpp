// Task 7: where a shard comes from that another number of ranks has saved.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "tests/grading/verdict.h"

namespace lab09::task7 {
namespace {

using lab::grading::Numbers;
using lab::grading::Parcel;
using lab::grading::stop;

struct Case {
  int64_t size;
  int64_t ranks;
  int64_t saved_ranks;
};

constexpr int64_t kLarge = (int64_t{1} << 33) + 1;

struct Piece {
  int64_t rank, first, last, to;
  bool operator==(const Piece&) const = default;
};

int64_t shard_of(int64_t size, int64_t ranks) { return (size + ranks - 1) / ranks; }

/// From one cut to the next.
std::vector<Piece> right(const Case& c, int64_t rank) {
  const int64_t shard = shard_of(c.size, c.ranks);
  const int64_t saved = shard_of(c.size, c.saved_ranks);
  std::vector<Piece> pieces;
  const int64_t end = std::min((rank + 1) * shard, c.size);
  for (int64_t i = rank * shard; i < end;) {
    const int64_t next = std::min(end, (i / saved + 1) * saved);
    pieces.push_back({i / saved, i % saved, i % saved + next - i, i - rank * shard});
    i = next;
  }
  return pieces;
}

std::string in_words(const std::vector<Piece>& pieces) {
  std::string text;
  for (const Piece& p : pieces)
    text += fmt::format("{}rank {}'s [{}, {}) to {}", text.empty() ? "" : ", ", p.rank, p.first,
                        p.last, p.to);
  return text.empty() ? "nothing" : text;
}

void judge(const Case& c, int64_t rank, const std::vector<Piece>& got) {
  const std::vector<Piece> expected = right(c, rank);
  if (got == expected) return;
  const std::string details =
      fmt::format("\n{} elements, saved by {} ranks, read by rank {} of {}: {}; expected {}",
                  c.size, c.saved_ranks, rank, c.ranks, in_words(got), in_words(expected));
  if (c.size == kLarge)
    stop("wrong only in a part of more than 2^32 elements: positions are 64 bits long" + details);
  const int64_t saved = shard_of(c.size, c.saved_ranks);
  std::vector<Piece> in_part = expected;
  std::vector<Piece> in_new_part = expected;
  for (Piece& p : in_part) {
    p.first += p.rank * saved;
    p.last += p.rank * saved;
  }
  for (Piece& p : in_new_part) p.to += rank * shard_of(c.size, c.ranks);
  if (got == in_part)
    stop("`from` is an index into the part; it must be one into the saved shard" + details);
  if (got == in_new_part)
    stop("`to` is an index into the part; it must be one into the new shard" + details);
  std::vector<Piece> inclusive = expected;
  std::vector<Piece> by_reader = expected;
  std::vector<Piece> at_from = expected;
  for (Piece& p : inclusive) --p.last;
  for (Piece& p : by_reader) p.rank = rank;
  for (Piece& p : at_from) p.to = p.first;
  if (got == inclusive)
    stop("a piece ends one too early: `last` is the element after the last one" + details);
  if (got == by_reader)
    stop("`rank` is the rank that reads; it must be the one that has saved the shard" + details);
  if (got == at_from)
    stop("`to` is an index into the saved shard; it must be one into the new shard" + details);
  for (const Piece& p : got) {
    if (p.first >= p.last) stop("one of the pieces is empty" + details);
    if (p.rank * saved + p.last > c.size) stop("a piece contains padding" + details);
    if (p.last > saved) stop("a piece ends after the end of the saved shard" + details);
  }
  if (got.size() > expected.size() && !expected.empty() &&
      std::equal(expected.rbegin(), expected.rend(), got.rbegin()))
    stop("pieces of an earlier call are returned as well" + details);
  std::vector<Piece> sorted = got;
  std::ranges::sort(sorted, {}, &Piece::to);
  if (sorted == expected) stop("the pieces are in another order than their elements" + details);
  if (got.size() < expected.size()) stop("a piece is missing" + details);
  if (got.size() > expected.size())
    stop("too many pieces: at most one from each saved shard" + details);
  const auto [mine, theirs] = std::ranges::mismatch(got, expected);
  const char* field = mine->rank != theirs->rank     ? "rank"
                      : mine->first != theirs->first ? "from.first"
                      : mine->last != theirs->last   ? "from.last"
                                                     : "to";
  stop(fmt::format("`{}` of piece {} is wrong", field, mine - got.begin()) + details);
}

TEST(Task7, AnyNumberOfRanksReads) {
  std::vector<Case> cases{{12, 2, 3}, {12, 3, 2}, {12, 3, 3}, {12, 1, 4}, {12, 4, 1},
                          {7, 6, 4},  {2, 6, 6},  {3, 1, 6},  {0, 2, 3}};
  std::mt19937_64 random(700 + lab::grading::scenario_seed());
  for (int k = 0; k < 30; ++k)
    cases.push_back({.size = static_cast<int64_t>(random() % (k % 2 == 0 ? 30 : 1000)),
                     .ranks = 1 + static_cast<int64_t>(random() % 7),
                     .saved_ranks = 1 + static_cast<int64_t>(random() % 7)});
  cases.push_back({1000, 2, 70});
  cases.push_back({999, 70, 3});
  cases.push_back({kLarge, 3, 2});
  cases.push_back({kLarge, 1, 3});
  for (const int64_t ranks : {1, 3})  // ranks without elements
    for (const int64_t size : {0, 1, 5}) cases.push_back({size, ranks, 1});
  std::vector<lab::grading::Call> calls;
  for (const Case& c : cases) {
    Parcel input;
    input.set("size", static_cast<double>(c.size));
    input.set("ranks", static_cast<double>(c.ranks));
    input.set("saved_ranks", static_cast<double>(c.saved_ranks));
    calls.push_back({.scenario = "pieces",
                     .inputs = {input},
                     .name = fmt::format("saved by {}, read by {}", c.saved_ranks, c.ranks)});
  }
  lab::grading::JobOptions options;
  options.network = lab::grading::Network::kNone;
  options.given = {"1"};
  judge_calls(calls, options, [&](size_t k, const std::vector<Parcel>& results) {
    const Numbers numbers = results[0].numbers("pieces");
    std::vector<Piece> pieces;
    int64_t rank = 0;
    for (size_t i = 0; i < numbers.size();) {
      if (numbers[i] == -1) {
        judge(cases[k], rank++, pieces);
        pieces.clear();
        ++i;
        continue;
      }
      const auto number = [&](size_t at) { return static_cast<int64_t>(numbers[i + at]); };
      pieces.push_back({number(0), number(1), number(2), number(3)});
      i += 4;
    }
  });
}

}  // namespace
}  // namespace lab09::task7
