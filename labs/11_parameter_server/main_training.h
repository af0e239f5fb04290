// Lab 11 · training a LLaMA with the student's server and workers. Given.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "common/comm/server/serving.h"
#include "common/data/sampler.h"
#include "common/data/token_dataset.h"
#include "common/data/tokenizer.h"
#include "common/model/llama_stage.h"
#include "common/optim/optimizer.h"
#include "common/run/options/run_plan.h"
#include "common/run/training/training_functions.h"
#include "common/run/training/training_run.h"
#include "labs/11_parameter_server/main_ledger.h"
#include "labs/11_parameter_server/parameter_server.h"

namespace lab11 {

/// What server and workers read from disk, each in its own process.
struct Input {
  explicit Input(const lab::RunPlan& plan);

  int64_t sequences(const lab::RunPlan& plan) const;

  lab::Tokenizer tokenizer;
  lab::TokenDataset data;
  lab::LlamaConfig model;  // with the tokenizer's vocabulary
  lab::TrainingFunctions functions;
};

/// A worker's model. Item k of the run is the k-th microbatch that lab 01 would read: a sampler
/// restored to the state before it (which a checkpoint would have saved) finds its sequences.
class Replica {
 public:
  Replica(const lab::RunPlan& plan, const Input& input);

  lab::TokenBatch batch(int64_t item);
  lab::Gradient compute(const lab::Ticket& ticket, const lab::Tensor& weights);
  lab::LlamaStage& model() { return model_; }

 private:
  const lab::RunPlan& plan_;
  const Input& input_;
  lab::LlamaStage model_;
  lab::Sampler reader_;
};

/// The server's model and optimizer, around the student's functions.
class Learner {
 public:
  /// What one update was made of.
  struct Update {
    int64_t version = 0;  // after it
    double loss = 0;      // mean over the samples, at the weights that the workers had
    int64_t samples = 0;
    int64_t stalest = 0;  // the largest staleness of its gradients
  };

  Learner(const lab::RunPlan& plan, const Input& input, int64_t staleness);
  /// Begins a resumed run at this version, with the items that have not counted yet. What happens
  /// from now on is noted in `ledger`, which must outlive the last call of a hook.
  void begin_at(int64_t version, Ledger& ledger);

  lab::LlamaStage& model() { return model_; }
  lab::Optimizer& optimizer() { return *optimizer_; }
  const Server& server() const { return server_; }
  int64_t updates() const { return updates_; }
  /// Called after each update. False: the run ends here.
  void when_updated(std::function<bool(const Update&)> listener) {
    listener_ = std::move(listener);
  }

  /// The hooks must not outlive this learner.
  lab::ServerHooks hooks();
  bool is_done() const { return stopped_ || finished(server_); }
  int64_t stalest() const { return stalest_; }

 private:
  std::optional<lab::Ticket> pull(int worker);
  void push(const lab::Push& push);
  void leave(int worker);

  lab::LlamaStage model_;
  std::unique_ptr<lab::Optimizer> optimizer_;
  Server server_;
  int64_t updates_ = 0;  // made so far; counted here, not by the student's functions
  Ledger* ledger_ = nullptr;
  std::function<bool(const Update&)> listener_;
  lab::Tensor snapshot_;  // the weights of the present version, once a worker has asked for them
  Update update_;         // what is known of the next one; `loss` is a sum so far
  int64_t stalest_ = 0;
  bool stopped_ = false;
};

/// Everything around a learner: validation, metrics, checkpoints, Ctrl-C. `drive` makes updates
/// happen until learner.is_done(); what it returns is printed at the end. Returns the exit code.
int train(const lab::RunPlan& plan, const Input& input, int64_t staleness,
          const std::function<std::string(Learner&, const Ledger&, lab::TrainingRun&)>& drive);

}  // namespace lab11
