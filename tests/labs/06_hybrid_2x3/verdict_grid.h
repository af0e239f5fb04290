// The ranks of dp pipelines of pp stages, and the operations that they have on record.
#pragma once

#include <string>
#include <vector>

#include "common/grading/verdict.h"
#include "tests/labs/pipeline/every_rank.h"

namespace lab06 {

using Numbers = std::vector<double>;
using pipeline_tests::late;
using pipeline_tests::over_gloo;

struct Grid {
  int dp = 2;
  int pp = 3;

  size_t ranks() const { return static_cast<size_t>(dp) * static_cast<size_t>(pp); }
  int pipeline(size_t rank) const { return static_cast<int>(rank) / pp; }
  int stage(size_t rank) const { return static_cast<int>(rank) % pp; }
  size_t rank(int pipeline, int stage) const {
    return static_cast<size_t>(pipeline) * static_cast<size_t>(pp) + static_cast<size_t>(stage);
  }
  bool is_last(size_t rank) const { return stage(rank) == pp - 1; }
  /// "rank 4 (stage 1 of pipeline 1)".
  std::string name(size_t rank) const;
  /// "dp", "pp".
  void set(lab::grading::Parcel& input) const;
};

/// As `operations_of` in rank_mesh.h leaves it.
struct Operation {
  enum class Group { kWorld, kPipeline, kReplicas, kOther };
  lab::OpKind kind = lab::OpKind::kSend;
  Group group = Group::kWorld;
  int peer = -1;
  int tag = 0;
  double bytes = 0;
  double posted = 0;  // simulated steps
  double done = 0;

  /// That it is the same operation at another time.
  bool same_kind(const Operation& other) const {
    return kind == other.kind && group == other.group && bytes == other.bytes;
  }
};

std::vector<Operation> operations(const lab::grading::Parcel& result, const std::string& entry);

/// "all_reduce of 4 bytes among the replicas".
std::string in_words(const Operation& operation);

/// "0 3", for ranks and the like.
std::string list(const Numbers& numbers);

}  // namespace lab06
