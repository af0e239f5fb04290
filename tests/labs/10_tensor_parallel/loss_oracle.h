// The loss of a divided vocabulary in double precision, and how students get it wrong.
#pragma once

#include <string>

#include "common/data/batch.h"
#include "tests/labs/10_tensor_parallel/slices.h"

namespace lab10 {

struct LossCase {
  std::string name;
  int64_t vocab = 8;
  lab::TokenBatch batch;
  double scale = 2;   // of the scores
  double offset = 0;  // of all scores of a position
  int64_t other_targets = 0;
  std::string lesson = {};  // what to think of if the right formula goes wrong in this case
  double above = 0;         // by how much the score of a target exceeds all others
  double unpredicted = 0;   // unless 0: a score of every position that predicts nothing
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
    if (above > 0)
      for (int64_t i = 0; i < positions(); ++i)
        if (target(i) != lab::kPadding)
          all.data()[i * vocab + target(i)] += static_cast<float>(above);
    if (unpredicted != 0)
      for (int64_t i = 0; i < positions(); ++i)
        if (target(i) == lab::kPadding)
          all.data()[i * vocab + i % vocab] = static_cast<float>(unpredicted);
    return all;
  }
  int32_t target(int64_t i) const {
    return (i + 1) % batch.length == 0 ? lab::kPadding : batch.tokens[static_cast<size_t>(i + 1)];
  }
};

/// A wrong way to compute the loss; by default it is right.
struct Way {
  bool all_sums = true;      // the sum of exponentials is that of all ranks
  bool same_largest = true;  // counted from the same largest score
  bool all_scores = true;    // the target's score is known on all ranks
  bool padding_counts = false;
  bool gradient_everywhere = false;  // also where nothing is predicted
  bool local_index = false;          // the target is looked for among the slice's own numbers
  bool everywhere = false;           // every rank has a target, at its number modulo the width
  bool nearest = false;              // likewise, at the number nearest to it
  bool last_missed = false;          // the last token of a rank's vocabulary is nobody's target
  bool unscaled_target = false;      // the target's 1 is not divided
  bool times_largest = false;        // the largest score is subtracted on every rank
  bool own_largest_score = false;    // only the target's counts from the own rank's largest
  bool plain_score = false;          // the largest score is not subtracted from the target's
  bool shifted_score = false;     // the target's score is read at its number, from the row's start
  bool late_score = false;        // the target's score is read when it is an exponential
  bool own_targets = false;       // a rank's loss is of its own tokens
  bool only_with_target = false;  // a rank without the target puts in no exponentials
  bool log_everywhere = false;    // the sum counts where nothing is predicted
  enum class Target {
    kNext,
    kNextOfBatch,
    kSame,
    kSameToTheEnd,
    kNoPadding
  } target = Target::kNext;
  double divisor = 0;  // 0: all targets
};

struct Outcome {
  double loss = 0;
  Numbers gradient;  // [N, V of the rank]
};

Outcome compute(const LossCase& c, size_t rank, size_t ranks, const Way& way = {});

}  // namespace lab10
