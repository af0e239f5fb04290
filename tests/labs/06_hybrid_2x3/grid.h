// The ranks of dp pipelines of pp stages.
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <string>
#include <vector>

#include "common/format.h"
#include "tests/grading/refusal.h"
#include "tests/grading/training_oracle.h"
#include "tests/grading/verdict.h"

namespace lab06 {

using lab::grading::Call;
using lab::grading::Expected;
using lab::grading::JobOptions;
using lab::grading::late_messages;
using lab::grading::Mistake;
using lab::grading::Numbers;
using lab::grading::Operation;
using lab::grading::Parcel;
using lab::grading::stop;

struct Grid {
  int dp = 2;
  int pp = 3;

  size_t ranks() const { return static_cast<size_t>(dp) * static_cast<size_t>(pp); }
  int pipeline(size_t rank) const { return static_cast<int>(rank) / pp; }
  int stage(size_t rank) const { return static_cast<int>(rank) % pp; }
  size_t rank(int pipeline, int stage) const {
    const int place = pipeline * pp + stage;
    return static_cast<size_t>(place);
  }
  bool is_last(size_t rank) const { return stage(rank) == pp - 1; }
  /// "rank 4 (stage 1 of pipeline 1)".
  std::string name(size_t rank) const {
    return fmt::format("rank {} (stage {} of pipeline {})", rank, stage(rank), pipeline(rank));
  }
  std::string in_words() const { return fmt::format("{} x {}", dp, lab::counted(pp, "stage")); }
  /// The names that the rank program gives to the groups of a rank.
  std::string row(size_t rank) const { return fmt::format("pipeline {}", pipeline(rank)); }
  std::string column(size_t rank) const { return fmt::format("replicas of stage {}", stage(rank)); }
  void set(Parcel& input) const {
    input.set("dp", dp);
    input.set("pp", pp);
  }
};

inline void remove_targets(lab::TokenBatch& batch) {
  for (size_t i = 0; i < batch.tokens.size(); ++i)
    if (i % static_cast<size_t>(batch.length) != 0) batch.tokens[i] = lab::kPadding;
}

/// Ends the test as failed unless a rank has thrown lab::Error before it did anything. `what`: that
/// it must; `done`: what it has done apart from messages.
inline void expect_refusal(const std::string& what, const Parcel& result, std::string done) {
  if (const auto sent = operations_of(result.part("sent")); !sent.empty())
    done = fmt::format("called {}", lab::op_name(sent[0].kind));
  if (!done.empty())
    stop(fmt::format("{} must throw lab::Error before it does anything, but has {}", what, done));
  const std::string& refusal = result.text("refusal");
  if (!lab::grading::is_refusal(refusal))
    stop(fmt::format("{} must throw lab::Error (lab::require), but it {}", what,
                     lab::grading::in_words(refusal)));
}

}  // namespace lab06
