// Task 5: the loss of a vocabulary that is divided.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "tests/labs/10_tensor_parallel/loss_oracle.h"

namespace lab10::task5 {
namespace {

using lab::grading::Call;
using lab::grading::JobOptions;
using lab::grading::late_messages;

/// What is wrong with the messages of a loss on so many ranks; empty if nothing is.
std::string wrong_loss_messages(const LossCase& c, size_t ranks, const Parcel& noted) {
  const std::vector<Operation> sent = operations_of(noted);
  uint64_t bytes = 0;
  for (const Operation& operation : sent) bytes += operation.bytes;
  const auto positions = static_cast<uint64_t>(c.positions());
  const uint64_t most = ranks == 1 ? 0 : 3 * positions * sizeof(float);
  std::string wrong;
  if (ranks == 1 && !sent.empty())
    wrong = "sends a message although there is only one rank";
  else if (bytes > most)
    wrong = "sends more than three numbers for each position: no rank may see the others' logits";
  else if (sent.size() > 3)
    wrong = "sends more than three messages";
  else if (!std::ranges::all_of(
               sent, [](const Operation& o) { return o.kind == lab::OpKind::kAllReduce; }))
    wrong = "sends something else than all_reduces";
  if (wrong.empty()) return "";
  return fmt::format("causal_lm_loss {}; {} positions, {} bytes at most; it called: {}", wrong,
                     positions, most, in_words(sent));
}

/// What the positions that alone have a wrong gradient have in common; empty if nothing.
std::string where_wrong(const LossCase& c, const Numbers& got, const Numbers& right, double share) {
  const auto width = right.size() / static_cast<size_t>(c.positions());
  bool only_without_target = true;
  for (size_t i = 0; i < right.size(); ++i)
    if (!(std::abs(got[i] - right[i]) <= 2.1e-5 * share))
      only_without_target =
          only_without_target && c.target(static_cast<int64_t>(i / width)) == lab::kPadding;
  return only_without_target
             ? "causal_lm_loss: wrong only where nothing is predicted (padding, the last position "
               "of a row): there the gradient must be 0, whatever the scores are"
             : "";
}

constexpr char kWhoAddsWhat[] =
    "causal_lm_loss: the loss is wrong. For each position, every rank adds its exponentials, and "
    "only the one whose range has the target adds the target's score; the others have no such "
    "score";

void judge_loss(const LossCase& c, const std::vector<Parcel>& ranks) {
  const size_t n = ranks.size();
  for (size_t r = 0; r < n; ++r) {
    const Outcome right = compute(c, r, n);
    const std::string wrong_traffic = wrong_loss_messages(c, n, ranks[r].part("sent"));
    // Where nearly all positions have a target, rounding makes as large a difference.
    const bool tells_positions = std::abs(static_cast<double>(c.positions() - c.targets())) >
                                 0.01 * static_cast<double>(c.targets());
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
         "the score of the target is missing where another rank has it: sum it over the ranks, "
         "where all others put in 0"},
        {{.padding_counts = true},
         "padding, or the last position of a row, is counted as a target"},
        {{.local_index = true},
         "the target's token is taken for a column of this rank's slice: its columns begin with "
         "vocabulary.first"},
        {{.gradient_everywhere = true},
         "padding, or the last position of a row, has a gradient: it predicts nothing"},
        {{.divisor = static_cast<double>(std::max<int64_t>(1, c.batch.target_count()))},
         "divided by this microbatch's targets, not by total_targets"},
        {{.divisor = tells_positions ? static_cast<double>(c.positions()) : 0},
         "divided by the number of positions, not by total_targets"},
        {{.divisor = std::max(1.0, static_cast<double>(static_cast<int32_t>(c.targets())))},
         "total_targets is an int64_t, and must not be narrowed to 32 bits"},
        {{.divisor = 1}, "a sum over the targets: divide by total_targets"},
        {{.divisor = static_cast<double>(std::max<int64_t>(2, c.targets()))},
         "a single target is divided by 2: only a total_targets of 0 is replaced, by 1"},
        {{.everywhere = true},
         "a target's 1 is subtracted on every rank: only the rank that has the token may subtract "
         "it"},
        {{.nearest = true},
         "a target's 1 is subtracted on every rank: only the rank that has the token may subtract "
         "it"},
        {{.last_missed = true},
         "the last token of a rank's vocabulary is nobody's target: the range is [first, last)"},
        {{.unscaled_target = true},
         "a target's 1 is not divided by total_targets, as the rest of its gradient is"},
        {{.times_largest = true},
         "the largest score is subtracted once per rank: the ranks that do not have the target put "
         "in 0"},
        {{.own_largest_score = true},
         "the target's score is relative to this rank's largest: t = z_y - m, with the m of all "
         "ranks"},
        {{.plain_score = true},
         "the largest score is not subtracted from the target's: t = z_y - m"},
        {{.shifted_score = true},
         "the target's score is read at `target` in this rank's row, not at target - "
         "vocabulary.first"},
        {{.late_score = true},
         "the target's score is read after the exponential has overwritten it"},
        {{.own_targets = true},
         "a rank's loss holds only the targets of its own tokens: all ranks return the same loss"},
        {{.log_everywhere = true},
         "the sum of the exponentials is counted where nothing is predicted"},
        {{.target = Way::Target::kNextOfBatch},
         "the last position of a row predicts the first token of the next row"},
        {{.target = Way::Target::kSame}, "position t predicts token t + 1, not token t"},
        {{.target = Way::Target::kSameToTheEnd}, "position t predicts token t + 1, not token t"},
        {{.only_with_target = true},
         "a rank that does not have the target leaves out its exponentials: every rank's belong in "
         "the sum"},
        {{.target = Way::Target::kNoPadding}, "padding is taken for token 0 as a target"}};
    // Where other microbatches have nearly all of the targets, the loss is small.
    const double own_share = static_cast<double>(c.batch.target_count()) /
                             static_cast<double>(std::max<int64_t>(1, c.targets()));
    lab::grading::expect(
        ranks[r].number("loss"),
        {.what = fmt::format("causal_lm_loss: the loss on rank {}", r),
         .values = {right.loss},
         .tolerance = {1e-5 * std::max(std::min(1.0, own_share), std::abs(right.loss))},
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
         .if_not_finite =
             c.targets() == 0
                 ? "causal_lm_loss: divided by total_targets, which is 0: without a target the "
                   "loss is 0"
             : c.offset < 0
                 ? "causal_lm_loss: log(0), where all scores are far below 0: does the largest "
                   "score begin with 0, or with numeric_limits<float>::min(), which is positive? "
                   "Begin with -infinity"
                 : "causal_lm_loss: exp overflows, or log(0): at each position, first subtract its "
                   "largest score over all ranks, which ReduceOp::kMax finds",
         .unexplained = first_of(wrong_traffic, first_of(c.lesson, n > 1 ? kWhoAddsWhat : ""))});
    const double share = 1.0 / static_cast<double>(std::max<int64_t>(1, c.targets()));
    const Numbers gradient = numbers_of(ranks[r].tensor("gradient"));
    const std::string where = where_wrong(c, gradient, right.gradient, share);
    lab::grading::expect(
        gradient,
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
             },
         .if_not_finite = first_of(where, "causal_lm_loss: a gradient is not finite"),
         .unexplained = first_of(wrong_traffic, first_of(where, c.lesson))});
    if (!wrong_traffic.empty()) stop(wrong_traffic);
  }
  std::vector<Numbers> losses;
  for (const Parcel& rank : ranks) losses.push_back(rank.numbers("loss"));
  lab::grading::expect_same_bits(losses, "the loss");
}

void expect_loss(size_t n, uint64_t seed, const JobOptions& options, size_t groups = 1) {
  const uint64_t drawn = seed + 1000 * lab::grading::scenario_seed();
  const auto width = static_cast<int64_t>(n);
  const auto batch = [&](const std::vector<int64_t>& lengths, int64_t length, int64_t vocab,
                         uint64_t k) {
    return lab::grading::draw_tokens(lengths, length, vocab, drawn + k);
  };
  const char* lost_decimals =
      "causal_lm_loss: decimals are lost: near 10,000, adjacent floats are 0.001 apart. Subtract "
      "the largest score from the target's before anything is added to it";
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
       .batch = batch({4, 4}, 4, 5 * width + 1, 4),
       .lesson = "causal_lm_loss: right as long as all ranks have the same number of tokens: here "
                 "blocks differ by one; a rank's tokens are [vocabulary.first, vocabulary.last)"},
      {.name = "scores near 10,000",
       .vocab = 4 * width,
       .batch = batch({6, 6}, 6, 4 * width, 5),
       .offset = 9000,
       .lesson = lost_decimals},
      {.name = "scores near -10,000",
       .vocab = 4 * width,
       .batch = batch({6, 6}, 6, 4 * width, 6),
       .offset = -9000,
       .lesson = lost_decimals},
      {.name = "scores near -10,000,000",
       .vocab = 4 * width,
       .batch = batch({6, 6}, 6, 4 * width, 21),
       .scale = 6,
       .offset = -1e7},
      {.name = "scores far apart",
       .vocab = 4 * width,
       .batch = batch({6, 5}, 6, 4 * width, 7),
       .scale = 300,
       .lesson = "causal_lm_loss: right unless scores are far apart: subtract, at each position, "
                 "its largest score over all tokens"},
      {.name = "no target",
       .vocab = 2 * width,
       .batch = batch({1, 1}, 4, 2 * width, 8),
       .lesson = "causal_lm_loss: the logits must be overwritten with gradients of 0 where nothing "
                 "is predicted, even if there is no target at all"},
      {.name = "no target here, but in other microbatches",
       .vocab = 2 * width,
       .batch = batch({1}, 1, 2 * width, 9),
       .other_targets = 5},
      {.name = "scores that are infinite where nothing is predicted",
       .vocab = 3 * width,
       .batch = batch({4, 2}, 5, 3 * width, 15),
       .unpredicted = std::numeric_limits<double>::infinity()},
      {.name = "more targets than 32 bits count",
       .vocab = 2 * width,
       .batch = batch({4, 5}, 5, 2 * width, 16),
       .other_targets = 5'000'000'000},
      {.name = "a total that is less than the targets",
       .vocab = 2 * width,
       .batch = batch({4, 5}, 5, 2 * width, 17),
       .other_targets = -4},
      {.name = "a total of 1, for a plain sum",
       .vocab = 2 * width,
       .batch = batch({3, 5}, 5, 2 * width, 18),
       .other_targets = -5},
      {.name = "a first row without a token",
       .vocab = 2 * width,
       .batch = batch({0, 5, 3}, 5, 2 * width, 19),
       .other_targets = 2},
      {.name = "one token a rank", .vocab = width, .batch = batch({5, 3}, 5, width, 10)},
      {.name = "all targets on one rank",
       .vocab = 2 * width,
       .batch = {.batch = 1, .length = 4, .tokens = {0, 0, 0, 0}}},
      {.name = "a large vocabulary",
       .vocab = 500 * width,
       .batch = batch({9}, 9, 500 * width, 11),
       .scale = 5},
      {.name = "predictions that are nearly certain, in a large vocabulary",
       .vocab = 2000 * width,
       .batch = batch({3, 2}, 3, 2000 * width, 12),
       .scale = 0.3,
       .lesson =
           "causal_lm_loss: thousands of small exponentials are lost next to a large one: add "
           "them in double precision",
       .above = 17},
      {.name = "thousands of losses that are nearly equal",
       .vocab = 2 * width,
       .batch = batch(std::vector<int64_t>(16, 1024), 1024, 2 * width, 14),
       .scale = 1e-3,
       .lesson = "causal_lm_loss: the losses of thousands of targets were added up in float, which "
                 "rounds each of them the same way; add them in double"},
      {.name = "a single target", .vocab = 3 * width, .batch = batch({2}, 4, 3 * width, 13)}};
  std::vector<Call> calls;
  for (LossCase& c : cases) {
    c.seed = drawn + 20 + calls.size();
    Parcel input;
    input.set("logits", c.logits());
    input.set("tokens", c.batch);
    input.set("targets", static_cast<double>(c.targets()));
    calls.push_back({.scenario = "loss", .inputs = std::vector<Parcel>(n, input), .name = c.name});
  }
  judge_in_groups(calls, groups, options,
                  [&](size_t k, const std::vector<Parcel>& ranks) { judge_loss(cases[k], ranks); });
}

TEST(Task5, LossOnTwoRanks) { expect_loss(2, 53, late_messages(53)); }
TEST(Task5, LossInGroupsOfTwo) { expect_loss(2, 58, late_messages(58), 2); }
TEST(Task5, LossOnSixRanks) { expect_loss(6, 56, late_messages(56)); }
TEST(Task5, LossOnOneRankIsLab01s) { expect_loss(1, 55, late_messages(55)); }
TEST(Task5, LossOnThreeRanksOverGloo) { expect_loss(3, 54, {}); }

}  // namespace
}  // namespace lab10::task5
