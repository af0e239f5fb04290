// A step of several pipelines: what goes in, and what the oracle says comes out.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tests/labs/06_hybrid_2x3/verdict_grid.h"
#include "tests/labs/pipeline/stage_layout.h"

namespace lab06 {

struct StepCase {
  Grid grid;
  std::string schedule = "1f1b";  // or "gpipe"
  int wave = 3;                   // microbatches of the schedule, m
  int waves = 1;
  bool unequal = false;  // rows of unequally many targets, differently many in each pipeline
  float leftover = 0;    // in every gradient before
  double max_norm = 0;
  std::string optimizer = "sgd";
  int steps = 1;
  double learning_rate = 0.05;

  int microbatches() const { return wave * waves; }
  std::vector<lab::TokenBatch> microbatches_of(int pipeline) const;
  double total() const;  // targets of all pipelines
  /// Bytes of a message between stages.
  double message_bytes() const;
  /// One parcel a rank. The first and the last stage get the true tokens, the others tokens of the
  /// same shape that mean nothing.
  std::vector<lab::grading::Parcel> inputs() const;
  /// One parcel for one process.
  lab::grading::Parcel as_one_process() const;
};

/// A scenario of the oracle, on one simulated rank.
lab::grading::Parcel oracle(const std::string& scenario, const StepCase& c);

/// The parts from which right and wrong gradients are made: those of each microbatch.
struct Parts {
  explicit Parts(const StepCase& c);

  using Factor = std::function<double(size_t pipeline, size_t microbatch)>;
  /// Sum over all microbatches of factor * gradients, for the whole model.
  Numbers combine(const Factor& factor) const;
  double combine_losses(const Factor& factor) const;
  double targets_of(size_t pipeline) const;

  /// Within 1e-6 of the sum of the absolute terms of each element, and of the largest gradient of
  /// the model: an element may be a difference of large numbers inside a microbatch, where the
  /// place of a factor moves the rounding.
  Numbers tolerance() const;

  std::vector<std::vector<Numbers>> gradients;  // by pipeline and microbatch, of the whole model
  std::vector<Numbers> losses;                  // likewise
  std::vector<Numbers> targets;
  double total = 0;
  Numbers sum;             // of all gradients, in the contracted order
  Numbers sums_of_losses;  // by pipeline, likewise
  Numbers weights;
  pipeline_tests::StageLayout layout;

 private:
  Parts(const StepCase& c, const lab::grading::Parcel& parcel);
};

/// Numbers of the whole model that a mistake leaves in each pipeline.
struct MeshMistake {
  std::vector<Numbers> by_pipeline;
  std::string message;
};

/// Ends the test as failed unless `entry` has, on all stages of all pipelines, the stage's part of
/// `whole`. A mistake is told if it explains the numbers of all ranks together. `mistakes` is asked
/// only when something is wrong; `details` adds to the message.
void expect_on_all_ranks(const std::vector<lab::grading::Parcel>& results, const std::string& entry,
                         const Grid& g, const Parts& p, const lab::grading::Expected& whole,
                         const std::function<std::vector<MeshMistake>()>& mistakes,
                         const std::function<std::string()>& details = {});

/// Ends the test as failed unless the replicas of each stage have the same bits.
void expect_equal_replicas(const std::vector<lab::grading::Parcel>& results,
                           const std::string& entry, const Grid& g, const std::string& what);

/// Numbers of the whole model, as all ranks have them one behind the other.
Numbers for_all_ranks(const Numbers& whole, const Grid& g);

}  // namespace lab06
