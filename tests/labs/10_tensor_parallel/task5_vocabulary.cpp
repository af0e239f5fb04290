// Task 5: embedding and loss of a vocabulary that is divided.
#include <gtest/gtest.h>

#include <random>

#include "tests/labs/10_tensor_parallel/slices.h"

namespace lab10 {
namespace {

using lab::grading::Call;
using lab::grading::JobOptions;
using lab::grading::late_messages;

// --- The embedding.

struct EmbedCase {
  std::string name;
  int64_t vocab = 8;
  int64_t dim = 3;
  std::vector<int32_t> tokens;
  float leftover = 0;
  uint64_t seed = 1;

  Tensor table() const { return draw_tensor({vocab, dim}, 1.0, seed); }
  Tensor dy() const {
    return draw_tensor({static_cast<int64_t>(tokens.size()), dim}, 1.0, seed + 1);
  }
};

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
    expect_tensor(fmt::format("embed_forward: y on rank {}", r), ranks[r].tensor("y"), y,
                  [&]() -> std::vector<Mistake> {
                    Numbers partial = y;
                    Numbers all = y;
                    for (size_t i = 0; i < c.tokens.size(); ++i)
                      for (size_t k = 0; k < dim; ++k) {
                        if (own.first > c.tokens[i] || c.tokens[i] >= own.last)
                          partial[i * dim + k] = 0;
                        all[i * dim + k] *= static_cast<double>(n);
                      }
                    return {{partial,
                             "embed_forward: only the rows of this rank's tokens: every "
                             "row is on one rank, and all need it"},
                            {all, "embed_forward: the rows are summed twice"}};
                  });
    expect_all_reduces("embed_forward", ranks[r].part("forward.sent"), n > 1 ? 1 : 0,
                       static_cast<int64_t>(y.size()));
    const auto first = static_cast<std::ptrdiff_t>(static_cast<size_t>(own.first) * dim);
    const auto last = static_cast<std::ptrdiff_t>(static_cast<size_t>(own.last) * dim);
    const Numbers right(dtable.begin() + first, dtable.begin() + last);
    expect_tensor(fmt::format("embed_backward: the gradient of the table on rank {}", r),
                  ranks[r].tensor("gradient"), right, [&]() -> std::vector<Mistake> {
                    const Numbers leftover(right.size(), double{c.leftover});
                    return {{leftover, "embed_backward leaves the gradient of the table as it was"},
                            {plus(right, leftover, -1),
                             "embed_backward overwrites the gradient of the table: it is added up"},
                            {plus(leftover, plus(right, leftover, -1), static_cast<double>(n)),
                             "embed_backward sums over the ranks what is the same on all of them"}};
                  });
    expect_all_reduces("embed_backward", ranks[r].part("backward.sent"), 0, 0);
  }
}

void expect_embed(size_t n, uint64_t seed, JobOptions options) {
  options.given = {"1"};
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
      {"padding", 2 * width + 1, 3, {}, 0.25F}};
  for (int64_t t = 0; t < 2 * width; ++t) cases[0].tokens.push_back(static_cast<int32_t>(t));
  for (size_t k = 1; k < cases.size(); ++k)
    cases[k].tokens = tokens(6 + random() % 9, cases[k].vocab);
  cases.back().tokens.insert(cases.back().tokens.begin() + 2, lab::kPadding);
  cases.back().tokens.push_back(lab::kPadding);
  cases[3].tokens.push_back(static_cast<int32_t>(cases[3].vocab - 1));
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
    calls.push_back({.scenario = "embed", .inputs = std::vector<Parcel>(n, input), .name = c.name});
  }
  judge_calls(calls, options,
              [&](size_t k, const std::vector<Parcel>& ranks) { judge_embed(cases[k], ranks); });
}

TEST(Task5, EmbeddingOnThreeRanks) { expect_embed(3, 51, late_messages(51)); }
TEST(Task5, EmbeddingOnOneRank) { expect_embed(1, 52, late_messages(52)); }

// --- The loss.

struct LossCase {
  std::string name;
  int64_t vocab = 8;
  lab::TokenBatch batch;
  double scale = 2;   // of the scores
  double offset = 0;  // of all scores of a position
  int64_t other_targets = 0;
  uint64_t seed = 1;

  int64_t positions() const { return batch.batch * batch.length; }
  int64_t targets() const { return batch.target_count() + other_targets; }
  /// Each position has its own offset, as near as possible to `offset`.
  Tensor logits() const {
    const Tensor all = draw_tensor({positions(), vocab}, scale, seed);
    for (int64_t i = 0; i < positions(); ++i)
      for (int64_t v = 0; v < vocab; ++v)
        all.data()[i * vocab + v] +=
            static_cast<float>(offset + (offset != 0 ? static_cast<double>(i % 3) : 0.0));
    return all;
  }
  int32_t target(int64_t i) const {
    return (i + 1) % batch.length == 0 ? lab::kPadding : batch.tokens[static_cast<size_t>(i + 1)];
  }
};

/// How a mistake would count.
struct Way {
  bool all_sums = true;      // the sum of exponentials is that of all ranks
  bool same_largest = true;  // counted from the same largest score
  bool all_scores = true;    // the target's score is known on all ranks
  bool padding_counts = false;
  bool gradient_everywhere = false;  // also where nothing is predicted
  bool local_index = false;          // the target is looked for among the slice's own numbers
  double divisor = 0;                // 0: all targets
};

struct Outcome {
  double loss = 0;
  Numbers gradient;  // [N, V of the rank]
};

Outcome compute(const LossCase& c, size_t rank, size_t ranks, const Way& way = {}) {
  const Numbers logits = numbers_of(c.logits());
  const lab::Range own = lab::range_of(c.vocab, slice(rank, ranks));
  const double divisor =
      way.divisor > 0 ? way.divisor : std::max<double>(1, static_cast<double>(c.targets()));
  Outcome outcome;
  for (int64_t i = 0; i < c.positions(); ++i) {
    const auto score = [&](int64_t v) { return logits[static_cast<size_t>(i * c.vocab + v)]; };
    const auto largest_in = [&](const lab::Range& range) {
      double largest = score(range.first);
      for (int64_t v = range.first; v < range.last; ++v) largest = std::max(largest, score(v));
      return largest;
    };
    const double largest = largest_in(way.same_largest ? lab::Range{0, c.vocab} : own);
    const int32_t known = c.target(i);
    const int32_t target = way.padding_counts && known == lab::kPadding ? 0 : known;
    const bool counts = target != lab::kPadding;
    const bool here = counts && own.first <= target && target < own.last;
    double sum = 0;
    double target_score = counts ? score(target) - largest : 0;
    for (size_t r = 0; r < ranks; ++r) {
      if (!way.all_sums && r != rank) continue;
      const lab::Range range = lab::range_of(c.vocab, slice(r, ranks));
      const double from = way.same_largest ? largest : largest_in(range);
      if (counts && range.first <= target && target < range.last)
        target_score = score(target) - from;
      for (int64_t v = range.first; v < range.last; ++v) sum += std::exp(score(v) - from);
    }
    if (counts)
      outcome.loss += (std::log(sum) - (here || way.all_scores ? target_score : 0.0)) / divisor;
    const int64_t hot = way.local_index ? own.first + target : target;
    for (int64_t v = own.first; v < own.last; ++v)
      outcome.gradient.push_back(
          counts || way.gradient_everywhere
              ? (std::exp(score(v) - largest) / sum - (v == hot ? 1.0 : 0.0)) / divisor
              : 0.0);
  }
  return outcome;
}

void judge_loss(const LossCase& c, const std::vector<Parcel>& ranks) {
  const size_t n = ranks.size();
  for (size_t r = 0; r < n; ++r) {
    const Outcome right = compute(c, r, n);
    const std::vector<std::pair<Way, std::string>> ways{
        {{.all_sums = false},
         "the softmax of this rank's scores alone: the sum of the exponentials is that of all "
         "ranks"},
        {{.same_largest = false},
         "each rank subtracts its own largest score: sums can be added only if all count from the "
         "same one"},
        {{.all_sums = false, .all_scores = false},
         "the softmax of this rank's scores alone: neither the sum of the exponentials nor the "
         "target's score is that of all ranks"},
        {{.all_scores = false},
         "the score of the target is missing where another rank has it: it is summed over the "
         "ranks, of which all others put in 0"},
        {{.padding_counts = true},
         "padding, or the last position of a row, is counted as a target"},
        {{.local_index = true},
         "the target's token is taken for a column of this rank's slice: its columns begin with "
         "vocabulary.first"},
        {{.gradient_everywhere = true},
         "padding, or the last position of a row, has a gradient: it predicts nothing"},
        {{.divisor = static_cast<double>(std::max<int64_t>(1, c.batch.target_count()))},
         "divided by this microbatch's targets, not by total_targets"},
        {{.divisor = static_cast<double>(c.positions())},
         "divided by the number of positions, not by total_targets"},
        {{.divisor = 1}, "a sum over the targets: divide by total_targets"}};
    lab::grading::expect(
        ranks[r].number("loss"),
        {.what = fmt::format("causal_lm_loss: the loss on rank {}", r),
         .values = {right.loss},
         .tolerance = {1e-5 * std::max(1.0, std::abs(right.loss))},
         .mistakes =
             [&] {
               std::vector<Mistake> all;
               for (const auto& [way, message] : ways)
                 all.push_back({{compute(c, r, n, way).loss}, "causal_lm_loss: " + message});
               all.push_back({{right.loss * static_cast<double>(n)},
                              "causal_lm_loss: the loss is summed over the ranks, although each of "
                              "them has all of it"});
               all.push_back({{right.loss / static_cast<double>(n)},
                              "causal_lm_loss: the loss is divided by the number of ranks"});
               return all;
             },
         .if_not_finite = "causal_lm_loss: exp overflows, or log(0): subtract the largest score of "
                          "all ranks first"});
    const double share = 1.0 / static_cast<double>(std::max<int64_t>(1, c.targets()));
    lab::grading::expect(
        numbers_of(ranks[r].tensor("gradient")),
        {.what = fmt::format("causal_lm_loss: the gradient of rank {}'s logits", r),
         .values = right.gradient,
         .tolerance = {2.1e-5 * share},
         .name =
             [&](size_t i) {
               const auto width = static_cast<size_t>(lab::range_of(c.vocab, slice(r, n)).size());
               return fmt::format("position {}, its token {}", i / width, i % width);
             },
         .mistakes =
             [&] {
               std::vector<Mistake> all;
               for (const auto& [way, message] : ways)
                 all.push_back({compute(c, r, n, way).gradient, "causal_lm_loss: " + message});
               return all;
             }});
    const std::vector<Operation> sent = operations_of(ranks[r].part("sent"));
    uint64_t bytes = 0;
    bool reduces_only = true;
    for (const Operation& operation : sent) {
      bytes += operation.bytes;
      reduces_only = reduces_only && operation.kind == lab::OpKind::kAllReduce;
    }
    const uint64_t most = n == 1 ? 0 : 3 * static_cast<uint64_t>(c.positions()) * sizeof(float);
    if (bytes > most || sent.size() > 3 || !reduces_only)
      stop(
          fmt::format("causal_lm_loss sends more than three numbers for each position: no rank may "
                      "see the others' logits\n{} positions, {} bytes at most; it called: {}",
                      c.positions(), most, in_words(sent)));
  }
  std::vector<Numbers> losses;
  for (const Parcel& rank : ranks) losses.push_back(rank.numbers("loss"));
  lab::grading::expect_same_bits(losses, "the loss");
}

void expect_loss(size_t n, uint64_t seed, const JobOptions& options) {
  const uint64_t drawn = seed + 1000 * lab::grading::scenario_seed();
  const auto width = static_cast<int64_t>(n);
  const auto batch = [&](const std::vector<int64_t>& lengths, int64_t length, int64_t vocab,
                         uint64_t k) {
    return lab::grading::draw_tokens(lengths, length, vocab, drawn + k);
  };
  std::vector<LossCase> cases{
      {.name = "one row", .vocab = 2 * width, .batch = batch({5}, 5, 2 * width, 1)},
      {.name = "padding, and targets of other microbatches",
       .vocab = 3 * width,
       .batch = batch({4, 7, 2}, 7, 3 * width, 2),
       .other_targets = 9},
      {.name = "the same shapes, other numbers",
       .vocab = 3 * width,
       .batch = batch({7, 1, 6}, 7, 3 * width, 3),
       .other_targets = 2},
      {.name = "a vocabulary that cannot be divided equally",
       .vocab = 5 * width + 1,
       .batch = batch({4, 4}, 4, 5 * width + 1, 4)},
      {.name = "scores near 10,000",
       .vocab = 4 * width,
       .batch = batch({6, 6}, 6, 4 * width, 5),
       .offset = 9000},
      {.name = "scores near -10,000",
       .vocab = 4 * width,
       .batch = batch({6, 6}, 6, 4 * width, 6),
       .offset = -9000},
      {.name = "scores far apart",
       .vocab = 4 * width,
       .batch = batch({6, 5}, 6, 4 * width, 7),
       .scale = 300},
      {.name = "no target", .vocab = 2 * width, .batch = batch({1, 1}, 4, 2 * width, 8)},
      {.name = "no target here, but in other microbatches",
       .vocab = 2 * width,
       .batch = batch({1}, 1, 2 * width, 9),
       .other_targets = 5},
      {.name = "one token a rank", .vocab = width, .batch = batch({5, 3}, 5, width, 10)},
      {.name = "all targets on one rank",
       .vocab = 2 * width,
       .batch = {.batch = 1, .length = 4, .tokens = {0, 0, 0, 0}}},
      {.name = "a large vocabulary",
       .vocab = 500 * width,
       .batch = batch({9}, 9, 500 * width, 11),
       .scale = 5}};
  std::vector<Call> calls;
  for (LossCase& c : cases) {
    c.seed = drawn + 20 + calls.size();
    Parcel input;
    input.set("logits", c.logits());
    input.set("tokens", c.batch);
    input.set("targets", static_cast<double>(c.targets()));
    calls.push_back({.scenario = "loss", .inputs = std::vector<Parcel>(n, input), .name = c.name});
  }
  judge_calls(calls, options,
              [&](size_t k, const std::vector<Parcel>& ranks) { judge_loss(cases[k], ranks); });
}

TEST(Task5, LossOnTwoRanks) { expect_loss(2, 53, late_messages(53)); }
TEST(Task5, LossOnSixRanks) { expect_loss(6, 56, late_messages(56)); }
TEST(Task5, LossOnOneRankIsLab01s) { expect_loss(1, 55, late_messages(55)); }
TEST(Task5, LossOnThreeRanksOverGloo) { expect_loss(3, 54, {}); }

}  // namespace
}  // namespace lab10
