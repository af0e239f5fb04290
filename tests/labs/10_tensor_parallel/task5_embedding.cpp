// Task 5: the embedding of a vocabulary that is divided.
#include <gtest/gtest.h>

#include <functional>
#include <random>
#include <set>

#include "tests/labs/10_tensor_parallel/slices.h"

namespace lab10::task5 {
namespace {

using lab::grading::Call;
using lab::grading::JobOptions;
using lab::grading::late_messages;

struct EmbedCase {
  std::string name;
  int64_t vocab = 8;
  int64_t dim = 3;
  std::vector<int32_t> tokens;
  float leftover = 0;
  uint64_t seed = 1;
  std::vector<int32_t> others = {};  // of a microbatch whose forward pass comes in between
  bool by_threads = false;           // called again and again, to find races

  Tensor table() const { return draw_tensor({vocab, dim}, 1.0, seed); }
  Tensor dy() const {
    return draw_tensor({static_cast<int64_t>(tokens.size()), dim}, 1.0, seed + 1);
  }
};

/// What to think of first if rows are wrong in this case.
std::string uneven_cause(const EmbedCase& c, size_t ranks) {
  return c.vocab % static_cast<int64_t>(ranks) == 0
             ? ""
             : "embed_forward: right as long as all ranks have the same number of tokens: here "
               "blocks differ by one; a rank's tokens are [vocabulary.first, vocabulary.last)";
}

/// What to think of first if the gradient of the table is wrong in this case.
std::string embed_backward_cause(const EmbedCase& c) {
  const std::set<int32_t> different(c.tokens.begin(), c.tokens.end());
  const std::string wrong = "embed_backward: the gradient of the table is wrong: ";
  if (c.by_threads)
    return wrong +
           "do several threads add to the same row at once? Then some of what they add gets lost";
  if (c.others.empty())
    return wrong + "each row of dy belongs to the row of its token, counted from vocabulary.first";
  return wrong +
         (different.size() < c.tokens.size()
              ? "a token that occurs twice adds twice; and the tokens are those passed in, not "
                "those of the last forward pass"
              : "the tokens are those passed in, not those of the last forward pass");
}

/// The sum of what the ranks put in, if `row_of` says which row of its block a rank takes for a
/// token: -1 for none.
Numbers embedded(const EmbedCase& c, size_t ranks,
                 const std::function<int64_t(int32_t token, const lab::Range& own)>& row_of) {
  const Numbers table = numbers_of(c.table());
  const auto dim = static_cast<size_t>(c.dim);
  Numbers y(c.tokens.size() * dim, 0.0);
  for (size_t r = 0; r < ranks; ++r) {
    const lab::Range own = lab::range_of(c.vocab, slice(r, ranks));
    for (size_t i = 0; i < c.tokens.size(); ++i) {
      const int64_t row = row_of(c.tokens[i], own);
      if (row < 0 || row >= own.size()) continue;
      for (size_t k = 0; k < dim; ++k)
        y[i * dim + k] += table[static_cast<size_t>(own.first + row) * dim + k];
    }
  }
  return y;
}

std::vector<Mistake> embed_mistakes(const EmbedCase& c, size_t ranks, size_t rank,
                                    const Numbers& right) {
  const auto dim = static_cast<size_t>(c.dim);
  const lab::Range mine = lab::range_of(c.vocab, slice(rank, ranks));
  Numbers partial = right;
  Numbers all = right;
  for (size_t i = 0; i < c.tokens.size(); ++i)
    for (size_t k = 0; k < dim; ++k) {
      if (mine.first > c.tokens[i] || c.tokens[i] >= mine.last) partial[i * dim + k] = 0;
      all[i * dim + k] *= static_cast<double>(ranks);
    }
  const auto in = [](int32_t token, int64_t first, int64_t last) {
    return first <= token && token < last;
  };
  return {
      {partial,
       "embed_forward: only the rows of this rank's tokens: every row is on one rank, but all "
       "ranks need it"},
      {all, "embed_forward: the rows are summed twice"},
      {embedded(c, ranks,
                [&](int32_t t, const lab::Range& own) {
                  return in(t, own.first + 1, own.last) ? t - own.first : -1;
                }),
       "embed_forward: the first token of each rank's vocabulary belongs to nobody: the range is "
       "[first, last)"},
      {embedded(c, ranks,
                [&](int32_t t, const lab::Range& own) {
                  return in(t, std::max<int64_t>(own.first, 0) + (own.first > 0 ? 1 : 0), own.last)
                             ? t - own.first
                             : -1;
                }),
       "embed_forward: the first token of each rank's vocabulary belongs to nobody: the range is "
       "[first, last)"},
      {embedded(c, ranks,
                [&](int32_t t, const lab::Range& own) {
                  return in(t, own.first, own.last - 1) ? t - own.first : -1;
                }),
       "embed_forward: the last token of each rank's vocabulary belongs to nobody: the range is "
       "[first, last)"},
      {embedded(c, ranks,
                [&](int32_t t, const lab::Range& own) {
                  return in(t, own.first, own.last + 1) ? std::min(t - own.first, own.size() - 1)
                                                        : -1;
                }),
       "embed_forward: the token vocabulary.last is taken for this rank's: the range is [first, "
       "last)"},
      {embedded(c, ranks,
                [](int32_t t, const lab::Range& own) { return t < 0 ? -1 : t % own.size(); }),
       "embed_forward: every rank puts in a row for every token: ranks that do not have the "
       "token must put in zeros"},
      {embedded(c, ranks,
                [&](int32_t t, const lab::Range& own) {
                  return in(t, own.first, own.last) ? t - own.first : 0;
                }),
       "embed_forward: for tokens of other ranks, and padding, a rank puts in its first row "
       "instead of zeros"},
      {embedded(c, ranks,
                [&](int32_t t, const lab::Range& own) {
                  return t == lab::kPadding ? 0 : in(t, own.first, own.last) ? t - own.first : -1;
                }),
       "embed_forward: padding is looked up as row 0; its row is 0"},
      {embedded(c, ranks,
                [&](int32_t t, const lab::Range& own) {
                  const int32_t token = t == lab::kPadding ? 0 : t;
                  return in(token, own.first, own.last) ? token - own.first : -1;
                }),
       "embed_forward: padding is looked up as token 0; its row is 0"}};
}

/// The step before had the tokens in the opposite order.
Numbers of_earlier_tokens(const Numbers& y, size_t dim) {
  Numbers earlier;
  for (size_t end = y.size(); end >= dim; end -= dim)
    earlier.insert(earlier.end(), y.begin() + static_cast<std::ptrdiff_t>(end - dim),
                   y.begin() + static_cast<std::ptrdiff_t>(end));
  return earlier;
}

void judge_embed(const EmbedCase& c, const std::vector<Parcel>& ranks) {
  const size_t n = ranks.size();
  const auto dim = static_cast<size_t>(c.dim);
  const Numbers table = numbers_of(c.table());
  const Numbers dy = numbers_of(c.dy());
  Numbers y;
  Numbers dtable(table.size(), double{c.leftover});
  for (size_t i = 0; i < c.tokens.size(); ++i)
    for (size_t k = 0; k < dim; ++k) {
      const bool padding = c.tokens[i] == lab::kPadding;
      const size_t at = padding ? k : static_cast<size_t>(c.tokens[i]) * dim + k;
      y.push_back(padding ? 0.0 : table[at]);
      if (!padding) dtable[at] += dy[i * dim + k];
    }
  for (size_t r = 0; r < n; ++r) {
    const lab::Range own = lab::range_of(c.vocab, slice(r, n));
    const std::string forward_messages =
        wrong_messages("embed_forward", ranks[r].part("forward.sent"), n > 1 ? 1 : 0,
                       static_cast<int64_t>(y.size()));
    expect_tensor(fmt::format("embed_forward: y on rank {}", r), ranks[r].tensor("y"), y,
                  [&]() -> std::vector<Mistake> {
                    std::vector<Mistake> all = embed_mistakes(c, n, r, y);
                    all.push_back({of_earlier_tokens(y, dim),
                                   "embed_forward: the rows of an earlier call's tokens, which "
                                   "were in the same memory: keep nothing between calls"});
                    return all;
                  },
                  {.unexplained = first_of(forward_messages, uneven_cause(c, n))});
    if (!forward_messages.empty()) stop(forward_messages);
    const auto first = static_cast<std::ptrdiff_t>(static_cast<size_t>(own.first) * dim);
    const auto last = static_cast<std::ptrdiff_t>(static_cast<size_t>(own.last) * dim);
    const Numbers right(dtable.begin() + first, dtable.begin() + last);
    expect_tensor(fmt::format("embed_backward: the gradient of the table on rank {}", r),
                  ranks[r].tensor("gradient"), right,
                  [&]() -> std::vector<Mistake> {
                    const Numbers leftover(right.size(), double{c.leftover});
                    return {{leftover, "embed_backward leaves the gradient of the table as it was"},
                            {plus(right, leftover, -1),
                             "embed_backward overwrites the gradient of the table: it is added up"},
                            {plus(leftover, plus(right, leftover, -1), static_cast<double>(n)),
                             "embed_backward sums over the ranks what is the same on all of them"}};
                  },
                  {.unexplained = embed_backward_cause(c)});
    expect_all_reduces("embed_backward", ranks[r].part("backward.sent"), 0, 0);
    expect_tensor("embed_backward: dy, which is only read,", ranks[r].tensor("dy"), dy);
  }
}

void expect_cases(std::vector<EmbedCase> cases, size_t n, uint64_t seed, JobOptions options,
                  size_t groups = 1) {
  options.given = {"1"};
  std::vector<Call> calls;
  for (EmbedCase& c : cases) {
    c.seed = seed + 10 * calls.size() + 7 * lab::grading::scenario_seed();
    Parcel input;
    input.set("table", c.table());
    input.set("dy", c.dy());
    const Tensor leftover = Tensor::empty({c.vocab, c.dim});
    leftover.fill(c.leftover);
    input.set("leftover", leftover);
    input.set("tokens", lab::TokenBatch{1, static_cast<int64_t>(c.tokens.size()), c.tokens});
    input.set("by_threads", c.by_threads ? 1 : 0);
    input.set("others", lab::TokenBatch{1, static_cast<int64_t>(c.others.size()), c.others});
    calls.push_back({.scenario = "embed", .inputs = std::vector<Parcel>(n, input), .name = c.name});
  }
  judge_in_groups(calls, groups, options, [&](size_t k, const std::vector<Parcel>& ranks) {
    judge_embed(cases[k], ranks);
  });
}

void expect_embed(size_t n, uint64_t seed, const JobOptions& options, size_t groups = 1) {
  std::mt19937_64 random(seed + 1000 * lab::grading::scenario_seed());
  const auto tokens = [&](size_t count, int64_t vocab) {
    std::vector<int32_t> all;
    for (size_t i = 0; i < count; ++i)
      all.push_back(static_cast<int32_t>(random() % static_cast<uint64_t>(vocab)));
    return all;
  };
  const auto width = static_cast<int64_t>(n);
  std::vector<EmbedCase> cases{
      {"every token once", 2 * width, 3, {}, 0},
      {"tokens that occur several times, gradients left over", 4 * width, 5, {}, 0.5F},
      {"the same, other tokens", 4 * width, 5, {}, 0.5F},
      {"a vocabulary that cannot be divided equally", 3 * width + 1, 2, {}, 0},
      {"a row of a rank's own", width, 4, {}, 0},
      {"padding", 2 * width + 1, 3, {}, 0.25F},
      {"nothing but padding", 2 * width, 3, {}, 0.5F}};
  for (int64_t t = 0; t < 2 * width; ++t) cases[0].tokens.push_back(static_cast<int32_t>(t));
  for (size_t k = 1; k < cases.size(); ++k)
    cases[k].tokens = tokens(6 + random() % 9, cases[k].vocab);
  cases[5].tokens.insert(cases[5].tokens.begin() + 2, lab::kPadding);
  cases[5].tokens.push_back(lab::kPadding);
  std::ranges::fill(cases[6].tokens, lab::kPadding);
  cases[3].tokens.push_back(static_cast<int32_t>(cases[3].vocab - 1));
  for (EmbedCase& c : cases) c.others = tokens(c.tokens.size(), c.vocab);
  cases[0].others.clear();
  expect_cases(cases, n, seed, options, groups);
}

TEST(Task5, EmbeddingOnThreeRanks) { expect_embed(3, 51, late_messages(51)); }
TEST(Task5, EmbeddingInGroupsOfTwo) { expect_embed(2, 59, late_messages(59), 2); }

/// A rank has several threads: additions to the same row must not get lost.
TEST(Task5, EmbeddingOfFewTokensByThreads) {
  EmbedCase c{
      .name = "thousands of positions, two different tokens", .vocab = 2, .dim = 64, .tokens = {}};
  for (int i = 0; i < 20'000; ++i) c.tokens.push_back(i % 3 == 0);
  c.by_threads = true;
  expect_cases({c}, 1, 57, {});
}

TEST(Task5, EmbeddingOnOneRank) { expect_embed(1, 52, late_messages(52)); }

}  // namespace
}  // namespace lab10::task5
