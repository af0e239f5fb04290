// Trainee: what a rank holds of the model, and how it trains it together with the others.
#pragma once

#include <memory>
#include <span>

#include "common/data/batch.h"
#include "common/pipeline/schedule.h"
#include "common/run/launch/job.h"
#include "common/run/options/run_plan.h"
#include "common/run/training/start_up.h"
#include "common/run/training/training_run.h"

namespace train {

/// All ranks of a job have one, and call the same functions.
class Trainee {
 public:
  virtual ~Trainee() = default;

  /// What a TrainingRun needs; refers to this object.
  virtual lab::TrainingParts parts() = 0;
  /// One optimizer step of all ranks together. Returns the argument of mean_loss.
  virtual double step(std::span<const lab::TokenBatch> microbatches, float learning_rate) = 0;
  /// The mean loss over all targets of a step, on every rank.
  virtual double mean_loss(double own_loss) = 0;
  virtual const lab::LlamaStage& model() const = 0;
};

/// What every kind of trainee is made of; must outlive it.
struct Surroundings {
  lab::Job& job;
  const lab::RunPlan& plan;
  const lab::Setup& setup;
  const lab::Schedule& schedule;  // of a pipeline
};

/// dp pipelines of pp stages: lab 06; each on tp ranks, which divide every layer: lab 10.
/// `overlap`: gradients travel during the last backward pass, if layers are whole.
std::unique_ptr<Trainee> pipelines(const Surroundings& around, bool overlap);

/// dp replicas that hold the model in shards: lab 09. Checkpoints are those of a whole model.
std::unique_ptr<Trainee> shards(const Surroundings& around);

}  // namespace train
