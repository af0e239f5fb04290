// Pipelines of all sizes in one job, the chain of their stages as the oracle, and their messages.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "common/model/llama_stage.h"
#include "tests/grading/training_case.h"
#include "tests/grading/verdict.h"

namespace lab04 {

using lab::grading::Numbers;

/// Absolute parts of a tolerance are relative to the largest number beside it.
inline constexpr double kTolerance = 1e-6;

/// Some ranks of a job, and what they pass through: each step of the case is a batch.
struct Pipeline {
  lab::grading::TrainingCase training;  // one replica
  std::vector<int> ranks;               // of the world: stage s is on ranks[s]

  size_t stages() const { return ranks.size(); }
  size_t passes() const { return training.steps.size(); }
  const lab::TokenBatch& batch(size_t pass) const { return training.steps[pass][0][0]; }
  uint64_t bytes(size_t pass) const;                 // of hidden states
  std::vector<lab::grading::Parcel> inputs() const;  // of a training step, per stage
};

/// Which ranks of a job belong to which pipeline.
using Layout = std::vector<std::vector<int>>;

/// The world is the pipeline; as often as there are kinds of cases.
std::vector<Layout> whole_world(int ranks);
/// The world, some of its ranks, all of them in another order: up to 6 stages of 6 ranks, or 3
/// of 3.
std::vector<Layout> parts_of_six_ranks();
std::vector<Layout> parts_of_three_ranks();

enum class Way { kForward, kBackward };

/// How a task's scenario is fed and judged.
struct PipelineScenario {
  std::string name;
  std::vector<lab::grading::Parcel> (*inputs)(const Pipeline&);  // per stage
  void (*judge)(const Pipeline&, const std::vector<lab::grading::Parcel>& stages);
  std::optional<Way> way = {};         // of each pass, if it goes one way only
  std::optional<float> init_std = {};  // of the weights, if not that of the cases
};

/// One call after the other in one job, one per layout. Every pipeline gets a different case: other
/// models, shapes, optimizers, with and without targets, leftover gradients, clipping.
void judge_pipelines(const PipelineScenario& scenario, const std::vector<Layout>& layouts,
                     uint64_t seed, lab::grading::JobOptions options);

/// What a stage that must not rely on tokens knows of a batch: wrong ones with padding, nothing but
/// padding, or none at all, which crashes those that rely on them.
lab::TokenBatch decoy(const Pipeline& pipeline, size_t stage, size_t pass);

/// `tensor` [B, T, C] is zero where this batch has padding.
lab::Tensor without_padding(const lab::Tensor& tensor, const lab::TokenBatch& batch);

/// All stages in one process, one after the other.
class Chain {
 public:
  explicit Chain(const Pipeline& pipeline);

  /// What a stage passes on, from what it has received and what it has computed from it.
  using HandOn = std::function<lab::Tensor(size_t stage, const lab::Tensor& received,
                                           const lab::Tensor& made)>;
  /// The output of every stage.
  std::vector<lab::Tensor> forward(const lab::TokenBatch& batch, const HandOn& hand_on = {});
  void backward(const lab::Tensor& logits_gradient, const HandOn& hand_on = {});
  /// Packed, of each stage.
  std::vector<Numbers> gradients() const;

 private:
  std::vector<lab::LlamaStage> stages_;
};

/// Each ends the test as failed unless, in this pass, all stages have had just these messages; and
/// have left their weights alone.
void expect_messages_of_pass(const Pipeline& pipeline,
                             const std::vector<lab::grading::Parcel>& stages, size_t pass, Way way);
void expect_messages_of_step(const Pipeline& pipeline, size_t stage, size_t step,
                             const std::vector<lab::grading::Operation>& operations);
void expect_same_weights(const std::vector<lab::grading::Parcel>& stages, size_t pass);

}  // namespace lab04
