#include "tests/labs/10_tensor_parallel/loss_oracle.h"

#include <algorithm>
#include <cmath>

namespace lab10 {

namespace {

/// What position i is taken to predict.
int32_t target_in(const LossCase& c, const Way& way, int64_t i) {
  const auto token = [&](int64_t at) {
    return at < c.positions() ? c.batch.tokens[static_cast<size_t>(at)] : lab::kPadding;
  };
  switch (way.target) {
    case Way::Target::kNext:
      return c.target(i);
    case Way::Target::kNextOfBatch:
      return token(i + 1);
    case Way::Target::kSame:
      return (i + 1) % c.batch.length == 0 ? lab::kPadding : token(i);
    case Way::Target::kSameToTheEnd:
      return token(i);
    case Way::Target::kNoPadding:
      return (i + 1) % c.batch.length == 0 ? lab::kPadding : std::max(0, token(i + 1));
  }
  return c.target(i);
}

/// What the rank that has token `target` reads at place `target` of its row i, or beyond the row.
double score_in_rows(const LossCase& c, const Numbers& logits, int64_t i, int64_t target,
                     size_t ranks) {
  lab::Range own{0, c.vocab};
  for (size_t r = 0; r < ranks; ++r)
    if (const lab::Range range = lab::range_of(c.vocab, slice(r, ranks));
        range.first <= target && target < range.last)
      own = range;
  const int64_t row = std::min(i + target / own.size(), c.positions() - 1);
  return logits[static_cast<size_t>(row * c.vocab + own.first + target % own.size())];
}

}  // namespace

Outcome compute(const LossCase& c, size_t rank, size_t ranks, const Way& way) {
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
    const int32_t known = target_in(c, way, i);
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
        target_score = score(target) - (way.own_largest_score ? largest_in(range) : from);
      if (way.only_with_target && !(range.first <= target && target < range.last)) continue;
      for (int64_t v = range.first; v < range.last; ++v) sum += std::exp(score(v) - from);
    }
    if (way.times_largest) target_score -= static_cast<double>(ranks - 1) * largest;
    if (way.plain_score) target_score += largest;
    if (way.shifted_score && counts)
      target_score = score_in_rows(c, logits, i, target, ranks) - largest;
    if (way.late_score) target_score = std::exp(target_score) - largest;
    if (counts && (here || !way.own_targets))
      outcome.loss += (std::log(sum) - (here || way.all_scores ? target_score : 0.0)) / divisor;
    if (!counts && way.log_everywhere) outcome.loss += std::log(sum) / divisor;
    const int64_t hot = way.local_index  ? own.first + target
                        : way.everywhere ? own.first + target % own.size()
                        : way.nearest    ? std::clamp<int64_t>(target, own.first, own.last - 1)
                                         : target;
    const bool missed = way.last_missed && target == own.last - 1;
    const double one = missed ? 0.0 : way.unscaled_target ? divisor : 1.0;
    for (int64_t v = own.first; v < own.last; ++v)
      outcome.gradient.push_back(
          counts || way.gradient_everywhere
              ? (std::exp(score(v) - largest) / sum - (v == hot ? one : 0.0)) / divisor
              : 0.0);
  }
  return outcome;
}

}  // namespace lab10
