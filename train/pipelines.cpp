// A stage of a pipeline, and its replicas in the others.
#include <optional>
#include <vector>

#include "common/run/timeline/recorded_timeline.h"
#include "common/run/training/pipeline_setup.h"
#include "common/run/training/training_functions.h"
#include "common/run/training/validation.h"
#include "labs/04_pipeline_1f1b/pipeline_1f1b.h"
#include "labs/06_hybrid_2x3/hybrid_2x3.h"
#include "train/overlap.h"
#include "train/trainee.h"

namespace train {
namespace {

using namespace lab;

class Pipelines final : public Trainee {
 public:
  Pipelines(const Surroundings& around, bool overlap)
      : around_(around),
        functions_(training_functions(around.setup.device)),
        mesh_(lab06::make_mesh(around.job.world(), around.plan.dp, around.plan.pp)),
        sampler_(around.setup.sequences(), around.setup.seed,
                 [this](std::span<const int64_t> order) {
                   return lab06::shard(order, mesh_.place, around_.plan.dp);
                 }),
        spans_(choose_stages(around.setup.model, around.plan.pp, around.plan.split, lab04::split)),
        stage_(around.setup.model, spans_[static_cast<size_t>(mesh_.place.stage)],
               around.setup.device, around.setup.seed),
        optimizer_(make_optimizer(around.plan, stage_, functions_.adam)),
        recorded_optimizer_(*optimizer_, around.job.world().recorder()),
        loss_(recorded_loss(functions_.loss, around.job.world().recorder())) {
    agree_on_stages(around.job, spans_);
    record_passes(stage_, around.job.world().recorder());
    if (overlap) reducer_.emplace(make_reducer(stage_, mesh_));
  }

  TrainingParts parts() override {
    return {stage_,
            *optimizer_,
            sampler_,
            around_.setup.tokenizer,
            around_.setup.data,
            [this] { return validate(); },
            spans_};
  }

  double step(std::span<const TokenBatch> microbatches, float learning_rate) override {
    const double clip = around_.plan.clip;
    if (reducer_)
      return overlapped_step(stage_, recorded_optimizer_, around_.schedule, microbatches, loss_,
                             learning_rate, clip, mesh_, *reducer_);
    return lab06::train_step(stage_, recorded_optimizer_, around_.schedule, microbatches, loss_,
                             learning_rate, clip, mesh_);
  }

  double mean_loss(double own_loss) override { return lab06::mean_loss(own_loss, mesh_); }
  const LlamaStage& model() const override { return stage_; }

 private:
  std::optional<double> validate() {
    const auto forward = [&](const TokenBatch& batch) {
      return lab04::forward(stage_, batch, mesh_.pipeline);
    };
    return validation_loss(stage_, around_.setup.data, around_.plan, functions_.loss, forward,
                           mesh_.pipeline, &mesh_.replicas);
  }

  Surroundings around_;
  TrainingFunctions functions_;
  lab06::Mesh mesh_;
  Sampler sampler_;
  std::vector<StageSpan> spans_;
  LlamaStage stage_;
  std::unique_ptr<Optimizer> optimizer_;
  RecordedOptimizer recorded_optimizer_;
  LossFunction loss_;
  std::optional<lab08::Reducer> reducer_;
};

}  // namespace

std::unique_ptr<Trainee> pipelines(const Surroundings& around, bool overlap) {
  return std::make_unique<Pipelines>(around, overlap);
}

}  // namespace train
