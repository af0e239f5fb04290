// A stage of a pipeline, or a slice of it, and its replicas in the other pipelines.
#include <memory>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "common/run/timeline/recorded_timeline.h"
#include "common/run/training/pipeline_setup.h"
#include "common/run/training/training_functions.h"
#include "common/run/training/validation.h"
#include "labs/04_pipeline_1f1b/pipeline_1f1b.h"
#include "labs/06_hybrid_2x3/hybrid_2x3.h"
#include "labs/10_tensor_parallel/passes.h"
#include "train/overlap.h"
#include "train/trainee.h"

namespace train {
namespace {

using namespace lab;

/// What lab 06 does not know. For its functions, the ranks that hold the same slice are a mesh.
struct Slices {
  ProcessGroup group;  // of the slices of this rank's stage
  ProcessGroup model;  // all slices of all stages of its pipeline
  ProcessGroup same;   // all ranks that hold the same slice of their stages
  Range vocabulary;    // this rank's
};

struct Groups {
  lab06::Mesh mesh;
  std::unique_ptr<Slices> slices;  // none: layers are whole
};

Groups make_groups(const Surroundings& around) {
  ProcessGroup& world = around.job.world();
  const auto [dp, pp, tp] = std::tuple(around.plan.dp, around.plan.pp, around.plan.tp);
  if (tp == 1) return {lab06::make_mesh(world, dp, pp), nullptr};
  lab10::Mesh mesh = lab10::make_mesh(world, dp, pp, tp);
  ProcessGroup same = world.split(mesh.place.slice, world.rank(), "same slice");
  const Range vocabulary = lab10::vocabulary_of(around.setup.model, mesh.slices);
  return {{.place = {.pipeline = mesh.place.pipeline, .stage = mesh.place.stage},
           .pipeline = std::move(mesh.pipeline),
           .replicas = std::move(mesh.replicas)},
          std::make_unique<Slices>(Slices{.group = std::move(mesh.slices),
                                          .model = std::move(mesh.model),
                                          .same = std::move(same),
                                          .vocabulary = vocabulary})};
}

LlamaStage make_stage(const Surroundings& around, const StageSpan& span, Slices* slices) {
  const Setup& setup = around.setup;
  if (slices != nullptr) return lab10::make_stage(setup.model, span, slices->group, setup.seed);
  return {setup.model, span, setup.device, setup.seed};
}

LossFunction make_loss(const LossFunction& whole, Slices* slices) {
  if (slices == nullptr) return whole;
  return [slices](const Tensor& logits, const TokenBatch& batch, int64_t targets) {
    return lab10::causal_lm_loss(logits, batch, targets, slices->vocabulary, slices->group);
  };
}

class Pipelines final : public Trainee {
 public:
  Pipelines(const Surroundings& around, bool overlap)
      : around_(around),
        functions_(training_functions(around.setup.device)),
        groups_(make_groups(around)),
        sampler_(around.setup.sequences(), around.setup.seed,
                 [this](std::span<const int64_t> order) {
                   return lab06::shard(order, mesh_.place, around_.plan.dp);
                 }),
        spans_(choose_stages(around.setup.model, around.plan.pp, around.plan.split, lab04::split)),
        stage_(make_stage(around, spans_[static_cast<size_t>(mesh_.place.stage)], slices())),
        optimizer_(make_optimizer(around.plan, stage_, functions_.adam)),
        recorded_optimizer_(*optimizer_, around.job.world().recorder()),
        loss_(make_loss(functions_.loss, slices())),
        recorded_loss_(recorded_loss(loss_, around.job.world().recorder())) {
    agree_on_stages(around.job, spans_);
    record_passes(stage_, around.job.world().recorder());
    if (overlap) reducer_.emplace(make_reducer(stage_, mesh_));
  }

  TrainingParts parts() override {
    TrainingParts parts{stage_,
                        *optimizer_,
                        sampler_,
                        around_.setup.tokenizer,
                        around_.setup.data,
                        [this] { return validate(); },
                        spans_};
    if (slices() != nullptr) {
      parts.slices = &slices()->group;
      parts.same_slice = &slices()->same;
    }
    return parts;
  }

  double step(std::span<const TokenBatch> microbatches, float learning_rate) override {
    const double clip = around_.plan.clip;
    const Schedule& schedule = around_.schedule;
    if (reducer_)
      return overlapped_step(stage_, recorded_optimizer_, schedule, microbatches, recorded_loss_,
                             learning_rate, clip, mesh_, *reducer_);
    if (slices() == nullptr)
      return lab06::train_step(stage_, recorded_optimizer_, schedule, microbatches, recorded_loss_,
                               learning_rate, clip, mesh_);
    const double own_loss =
        lab06::compute_gradients(stage_, schedule, microbatches, recorded_loss_, mesh_);
    if (clip > 0) lab10::clip_gradients(stage_, clip, slices()->model);
    recorded_optimizer_.step(stage_.parameters(), stage_.gradients(), learning_rate);
    return own_loss;
  }

  double mean_loss(double own_loss) override { return lab06::mean_loss(own_loss, mesh_); }
  const LlamaStage& model() const override { return stage_; }

 private:
  Slices* slices() { return groups_.slices.get(); }

  std::optional<double> validate() {
    const auto forward = [&](const TokenBatch& batch) {
      return lab04::forward(stage_, batch, mesh_.pipeline);
    };
    return validation_loss(stage_, around_.setup.data, around_.plan, loss_,
                           {&mesh_.replicas, &mesh_.pipeline, forward});
  }

  Surroundings around_;
  TrainingFunctions functions_;
  Groups groups_;
  lab06::Mesh& mesh_ = groups_.mesh;
  Sampler sampler_;
  std::vector<StageSpan> spans_;
  LlamaStage stage_;
  std::unique_ptr<Optimizer> optimizer_;
  RecordedOptimizer recorded_optimizer_;
  LossFunction loss_;
  LossFunction recorded_loss_;
  std::optional<lab08::Reducer> reducer_;
};

}  // namespace

std::unique_ptr<Trainee> pipelines(const Surroundings& around, bool overlap) {
  return std::make_unique<Pipelines>(around, overlap);
}

}  // namespace train
