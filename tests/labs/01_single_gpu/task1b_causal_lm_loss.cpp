// Task 1b: which positions count, against which token, divided by what.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <optional>

#include "tests/grading/training_case.h"
#include "tests/grading/verdict.h"
#include "tests/labs/01_single_gpu/softmax.h"

namespace lab01::task1b {
namespace {

using lab::Tensor;
using lab::TokenBatch;
using lab::grading::Call;
using lab::grading::Mistake;
using lab::grading::Numbers;
using lab::grading::Parcel;
using lab::grading::stop;
using lab::grading::to_doubles;

constexpr double kTolerance = 1e-5;  // as the contract says

struct Case {
  std::string name;
  TokenBatch batch;
  int64_t total_targets = 0;
  Tensor logits = {};       // [B, T, V]
  bool by_threads = false;  // called again and again, to find races

  int64_t positions() const { return batch.batch * batch.length; }
  size_t vocab() const { return static_cast<size_t>(logits.size(-1)); }
  double total() const { return static_cast<double>(std::max<int64_t>(total_targets, 1)); }
  std::string place(size_t i) const {
    const auto position = static_cast<int64_t>(i / vocab());
    return fmt::format("row {}, position {}", position / batch.length, position % batch.length);
  }
  int32_t token(int64_t position) const { return batch.tokens[static_cast<size_t>(position)]; }
  bool ends_row(int64_t position) const { return (position + 1) % batch.length == 0; }
  std::span<float> scores(int64_t position) const {
    return logits.values().subspan(static_cast<size_t>(position) * vocab(), vocab());
  }
};

/// `more`: targets of other microbatches of the step.
Case case_of(const std::string& name, const std::vector<int64_t>& lengths, int64_t length,
             int64_t vocab, int64_t more, uint64_t seed, double spread = 2.0) {
  seed += 1000 * lab::grading::scenario_seed();
  Case c{.name = name, .batch = lab::grading::draw_tokens(lengths, length, vocab, seed)};
  c.total_targets = c.batch.target_count() + more;
  c.logits = lab::grading::draw_tensor({c.batch.batch, length, vocab}, spread, seed + 500);
  return c;
}

/// Which token a position is scored against, if any.
using Target = std::optional<int32_t>;
using TargetOf = std::function<Target(int64_t position)>;

Target unless_padding(int32_t token) {
  return token == lab::kPadding ? std::nullopt : Target(token);
}

Target next_token(const Case& c, int64_t i) {
  return c.ends_row(i) ? std::nullopt : unless_padding(c.token(i + 1));
}

/// The loss and, after it, its gradient.
Numbers loss_with(const Case& c, const TargetOf& target_of, double divisor) {
  Numbers all = {0.0};
  for (int64_t i = 0; i < c.positions(); ++i) {
    const Softmax softmax(c.scores(i));
    const Target target = target_of(i);
    for (size_t v = 0; v < c.vocab(); ++v) {
      const bool is_target = target && v == static_cast<size_t>(*target);
      if (is_target) all[0] += softmax.loss(v) / divisor;
      all.push_back(target ? (softmax.probabilities[v] - (is_target ? 1 : 0)) / divisor : 0.0);
    }
  }
  return all;
}

std::vector<Mistake> wrong_targets(const Case& c) {
  const int64_t length = c.batch.length;
  const auto row = c.batch.row(0);
  const int64_t first_length = std::ranges::find(row, lab::kPadding) - row.begin();
  std::vector<Mistake> all;
  const auto add = [&](const std::string& message, const TargetOf& target_of) {
    all.push_back({loss_with(c, target_of, c.total()), message});
  };
  const auto add_if = [&](const std::string& message,
                          const std::function<bool(int64_t i)>& counts) {
    add(message, [&](int64_t i) { return counts(i) ? next_token(c, i) : std::nullopt; });
  };
  for (const bool last_too : {true, false})
    add("the shift is missing: position t is scored against token t, which the model has seen; it "
        "predicts token t+1 (section 2.4)",
        [&](int64_t i) {
          return c.ends_row(i) && !last_too ? std::nullopt : unless_padding(c.token(i));
        });
  add("the shift goes the wrong way: position t is scored against token t-1; it predicts token t+1 "
      "(section 2.4)",
      [&](int64_t i) { return i % length == 0 ? std::nullopt : unless_padding(c.token(i - 1)); });
  add("the last position of a row is scored against the first token of the next row; it predicts "
      "nothing (section 2.4)",
      [&](int64_t i) {
        return i + 1 == c.positions() ? std::nullopt : unless_padding(c.token(i + 1));
      });
  add_if("token 1, which begins a story, is left out: it is a target like any other",
         [&](int64_t i) { return next_token(c, i) != 1; });
  const auto last_token = static_cast<int32_t>(c.vocab()) - 1;
  add_if("token 0 is taken for padding: padding is lab::kPadding, and 0 is a token like any other",
         [&](int64_t i) { return next_token(c, i) != 0; });
  add_if("the last token of the vocabulary is taken for padding: padding is lab::kPadding",
         [&](int64_t i) { return next_token(c, i) != last_token; });
  add_if("the first position of each row is left out: it predicts the second token",
         [&](int64_t i) { return i % length != 0; });
  add_if("every row is taken to be as long as the first: each may have its own padding",
         [&](int64_t i) { return i % length + 1 < first_length; });
  for (const int64_t rest : {length, c.positions() % 2, c.positions() % 4, c.positions() % 8})
    add_if(
        "the last positions are left out: an equal part for each thread leaves a remainder, which "
        "counts as well",
        [&](int64_t i) { return i + rest < c.positions(); });
  return all;
}

std::vector<Mistake> mistakes(const Case& c) {
  std::vector<Mistake> all = wrong_targets(c);
  const auto rows = static_cast<double>(c.batch.batch);
  const auto add = [&](double divisor, const std::string& message) {
    if (divisor != 0)
      all.push_back({loss_with(
                         c, [&](int64_t i) { return next_token(c, i); }, divisor),
                     message});
  };
  add(1, "a sum instead of a mean: divide by total_targets (section 2.2)");
  add(static_cast<double>(c.batch.target_count()),
      "divided by this microbatch's own targets: divide by total_targets, those of the whole step "
      "(section 2.2)");
  add(static_cast<double>(c.positions()),
      "divided by the number of positions, padding and last ones included: divide by "
      "total_targets");
  add(rows * static_cast<double>(c.batch.length - 1),
      "divided by B * (T-1), padding included: divide by total_targets");
  add(rows, "divided by the number of sequences: divide by total_targets");
  add(c.total() * rows, "divided by the batch size on top of total_targets");
  add(c.total() * c.total(), "divided by total_targets twice");
  add(static_cast<double>(static_cast<int32_t>(static_cast<uint32_t>(c.total_targets))),
      "total_targets does not fit into an int: it is an int64_t, and may be above 2^31");
  add(std::numeric_limits<double>::infinity(),
      "all zero: 1 / total_targets, a division of integers, is 0; divide doubles");
  return all;
}

constexpr char kAddedInFloat[] =
    "the loss: right in its first digits only: are the losses of thousands of targets added up in "
    "float, where each is rounded to the digits of the sum? Add them in double";

bool has_nan(const Numbers& numbers) {
  return std::ranges::any_of(numbers, [](double v) { return std::isnan(v); });
}

constexpr char kCutOff[] =
    "the loss: is that of an improbable target cut off? It can be as large as the difference "
    "between two scores";

/// The loss alone, or the gradient alone, against the right one and all mistakes.
void expect_part(const Case& c, const std::string& what, bool is_loss, const Numbers& got) {
  const auto part = [is_loss](const Numbers& all) {
    return is_loss ? Numbers{all[0]} : Numbers(all.begin() + 1, all.end());
  };
  const Numbers right = part(loss_with(
      c, [&](int64_t i) { return next_token(c, i); }, c.total()));
  const bool lost_digits =
      is_loss && c.batch.target_count() > 10'000 && std::abs(got[0] - right[0]) < 1e-2 * right[0];
  const bool is_large = is_loss && right[0] > 1e6;  // next to it, smaller numbers look like 0
  lab::grading::expect(got, {.what = what,
                             .values = right,
                             // An entry of the gradient is a difference of numbers up to 1/n.
                             .tolerance = {kTolerance * (is_loss ? right[0] : 1 / c.total())},
                             .name = [&](size_t i) { return is_loss ? "" : c.place(i); },
                             .mistakes =
                                 [&] {
                                   std::vector<Mistake> all;
                                   for (const Mistake& m : mistakes(c))
                                     if (!has_nan(m.values) &&  // a nan has many causes
                                         (!is_large || m.values[0] > 0 || got[0] == 0))
                                       all.push_back({part(m.values), what + ": " + m.message});
                                   return all;
                                 },
                             .unexplained = lost_digits ? kAddedInFloat
                                            : is_large  ? kCutOff
                                                        : ""});
}

void expect_zero_without_target(const Case& c, const Numbers& got) {
  for (size_t i = 0; i < got.size(); ++i) {
    const auto position = static_cast<int64_t>(i / c.vocab());
    if (got[i] == 0.0 || next_token(c, position)) continue;
    const bool untouched = got[i] == double{c.logits.values()[i]};
    stop(fmt::format("{} predicts nothing, but {}\n{}: got {:.7g}, expected 0",
                     c.ends_row(position) ? "the last position of a row"
                                          : "a position whose next token is padding",
                     untouched ? "still holds its scores, which backward would take for gradients: "
                                 "fill it with 0, also when the microbatch has no target at all"
                               : "has a gradient: it should be exactly 0",
                     c.place(i), got[i]));
  }
}

void judge(const Case& c, const Parcel& result) {
  const Numbers losses = result.numbers("losses");
  if (c.by_threads && losses.front() != losses.back())
    stop(fmt::format(
        "the loss differs from call to call with the same input: do several threads add "
        "to one variable, or do they share another variable? Keep one loss per "
        "position, add them up afterwards\ngot {} and {}",
        losses.front(), losses.back()));
  if (result.number("fence_broken") != 0) stop("memory outside of the logits was overwritten");
  const Numbers gradients = to_doubles(result.tensor("gradients"));
  if (c.batch.target_count() == 0 && losses[0] != 0)
    stop(fmt::format(
        "a microbatch without any target must give the loss 0{}\ngot {}",
        c.total_targets == 0 ? ", also when total_targets is 0: do not divide 0 by 0" : "",
        losses[0]));
  expect_part(c, "the loss", true, {losses[0]});
  expect_zero_without_target(c, gradients);
  expect_part(c, "the gradients", false, gradients);
}

void expect_losses(const std::vector<Case>& cases) {
  std::vector<Call> calls;
  for (const Case& c : cases) {
    Parcel input;
    input.set("logits", c.logits);
    input.set("tokens", c.batch);
    input.set("total_targets", static_cast<double>(c.total_targets));
    input.set("by_threads", c.by_threads ? 1.0 : 0.0);
    calls.push_back({.scenario = "causal_lm_loss", .inputs = {input}, .name = c.name});
  }
  judge_calls(calls, {.network = lab::grading::Network::kNone, .given = {"1a"}},
              [&](size_t k, const std::vector<Parcel>& ranks) { judge(cases[k], ranks[0]); });
}

TEST(Task1b, FullRows) { expect_losses({case_of("full rows", {6, 6, 6}, 6, 11, 0, 1)}); }

TEST(Task1b, PaddingIsNoTarget) {
  expect_losses({case_of("padded rows", {7, 4, 1, 2}, 7, 11, 0, 2),
                 case_of("padded rows of a larger step", {7, 4, 1, 2}, 7, 11, 27, 3)});
}

TEST(Task1b, MicrobatchesOfEveryKind) {
  Case no_step = case_of("no target in the whole step", {1, 0, 1}, 4, 5, 0, 4);
  no_step.logits = lab::grading::draw_tensor({3, 4, 5}, 2.0, 4);
  expect_losses({case_of("a large microbatch", std::vector<int64_t>(17, 21), 21, 33, 0, 5),
                 case_of("a small one after it", {3, 5, 2}, 5, 33, 7, 6),
                 case_of("the same shape, other numbers", {5, 1, 4}, 5, 33, 19, 7),
                 case_of("no target in this microbatch", {1, 0, 1}, 4, 5, 9, 8),
                 no_step,
                 case_of("one row", {9}, 9, 6, 4, 9),
                 case_of("five rows of three", {3, 3, 3, 3, 3}, 3, 3, 1, 10),
                 case_of("rows of one token", {1, 1}, 1, 5, 3, 11),
                 case_of("rows of two tokens", {2, 2, 1}, 2, 5, 3, 12),
                 case_of("a single target", {2}, 2, 5, 0, 21),
                 case_of("the first row is the shortest", {2, 8, 6, 8}, 8, 7, 0, 13),
                 case_of("a vocabulary of one token", {4, 3}, 4, 1, 0, 14),
                 case_of("improbable targets", {8, 5, 7}, 8, 7, 2, 15, 300),
                 case_of("the most improbable ones", {4, 3, 4}, 4, 7, 2, 28, 1e36),
                 case_of("more than 2^32 targets in the step", {6, 4}, 6, 9, 5'000'000'000, 16),
                 case_of("padded rows after all that", {7, 4, 1, 2}, 7, 11, 0, 17),
                 case_of("a large vocabulary", {9, 5, 7}, 9, 32'003, 40, 18),
                 case_of("one of more than 2^16 tokens", {4, 2}, 4, 128'256, 0, 22),
                 case_of("a row without a token before others", {5, 0, 6, 0, 3}, 6, 9, 0, 23),
                 case_of("first rows without a token", {0, 0, 5, 6}, 6, 9, 0, 25),
                 case_of("no row at all", {}, 4, 5, 9, 27),
                 case_of("a divisor of 1, for a plain sum", {6, 4, 5}, 6, 9, -11, 24)});
}

/// Nobody promises numbers where nothing is predicted.
TEST(Task1b, AnyScoresWhereNothingIsPredicted) {
  Case c = case_of("scores that are not finite", {7, 4, 1, 7}, 7, 11, 0, 26);
  const std::array<float, 4> any = {std::numeric_limits<float>::infinity(), -2.0F,
                                    -std::numeric_limits<float>::infinity(),
                                    std::numeric_limits<float>::quiet_NaN()};
  size_t count = 0;
  for (int64_t i = 0; i < c.positions(); ++i)
    if (!next_token(c, i))
      for (float& score : c.scores(i)) score = any.at(count++ % any.size());
  Case with_zeros = case_of("some scores of 0", {7, 4, 1, 7}, 7, 11, 0, 29);
  for (int64_t i = 0; i < c.positions(); ++i)
    if (!next_token(c, i))
      for (size_t v = count++ % 3; v < c.vocab(); v += 3) with_zeros.scores(i)[v] = 0;
  expect_losses({c, with_zeros});
}

/// A score above that of the right token, the same everywhere: the cross-entropy of each target.
Case many_alike(const std::string& name, float above, int64_t rows = 64) {
  const int64_t length = (1 << 16) / rows;
  Case c = case_of(name, std::vector<int64_t>(rows, length), length, 2, rows, 19);
  for (int64_t i = 0; i < c.positions(); ++i)
    for (int32_t v = 0; v < 2; ++v)
      c.scores(i)[static_cast<size_t>(v)] = next_token(c, i) == v ? 0.0F : above;
  return c;
}

/// Every cross-entropy is 64, and the divisor a power of two: the loss is exact in float too, in
/// whatever order it is summed, and a single lost one shows. Different cross-entropies reveal the
/// order.
TEST(Task1b, ThreadsAddUpWithoutLoss) {
  std::vector<Case> cases = {
      many_alike("many rows on all cores", 64),
      many_alike("tens of thousands of rows", 64, 1 << 15),
      case_of("many different losses", std::vector<int64_t>(256, 32), 32, 5, 0, 27)};
  for (Case& c : cases) c.by_threads = true;
  expect_losses(cases);
}

/// A sum in float would round each of them the same way.
TEST(Task1b, ManyTargetsAddUp) {
  expect_losses({many_alike("65,472 equal losses", 4.3F),
                 many_alike("32,767 equal losses in a row", 4.3F, 2)});
}

}  // namespace
}  // namespace lab01::task1b
