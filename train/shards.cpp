// A replica that holds its model in shards.
#include <optional>
#include <vector>

#include "common/comm/agreement.h"
#include "common/run/checkpoint/checkpoint_tensors.h"
#include "common/run/timeline/recorded_timeline.h"
#include "common/run/training/training_functions.h"
#include "common/run/training/validation.h"
#include "common/tensor/memory_account.h"
#include "labs/02_gradient_allreduce/gradient_allreduce.h"
#include "labs/09_sharded/sharded.h"
#include "train/trainee.h"

namespace train {
namespace {

using namespace lab;

class Shards final : public Trainee {
 public:
  explicit Shards(const Surroundings& around)
      : around_(around),
        world_(around.job.world()),
        functions_(training_functions(around.setup.device)),
        sampler_(around.setup.sequences(), around.setup.seed,
                 [this](std::span<const int64_t> order) {
                   return lab02::shard(order, world_.rank(), world_.size());
                 }),
        model_(around.setup.model, StageSpan::whole(around.setup.model), around.setup.device,
               around.setup.seed, WeightMemory::kBound),
        sharded_(lab09::make_sharded(model_, world_, around.plan.shard,
                                     [this](int64_t size) {
                                       return make_optimizer(around_.plan, size,
                                                             around_.setup.device, functions_.adam);
                                     })),
        loss_(recorded_loss(functions_.loss, world_.recorder())) {
    lab09::attach(sharded_);
    record_passes(model_, world_.recorder());
  }

  TrainingParts parts() override {
    TrainingParts parts{model_,
                        *sharded_.parts.front().optimizer,
                        sampler_,
                        around_.setup.tokenizer,
                        around_.setup.data,
                        [this] { return validate(); }};
    parts.shards = [this] { return own_tensors(); };
    parts.load_shards = [this](const auto& checkpoint) { load(checkpoint); };
    parts.whole_tensors = true;
    return parts;
  }

  double step(std::span<const TokenBatch> microbatches, float learning_rate) override {
    // The first optimizer's count is what a checkpoint holds.
    for (const lab09::Part& part : sharded_.parts)
      part.optimizer->set_steps(sharded_.parts.front().optimizer->steps());
    return lab09::train_step(sharded_, microbatches, loss_, learning_rate, around_.plan.clip);
  }

  double mean_loss(double own_loss) override { return sum_over(world_, own_loss); }
  const LlamaStage& model() const override { return model_; }

 private:
  /// Stage 3 sends in every pass, so there all ranks compute all microbatches.
  std::optional<double> validate() {
    return validation_loss(model_, around_.setup.data, around_.plan, functions_.loss,
                           {.replicas = sharded_.stage == 3 ? nullptr : &world_});
  }

  /// What a part consists of: a shard of the weights, and one of each kind of the optimizer's
  /// state.
  struct Kind {
    std::string group;   // of a checkpoint: "optimizer.exp_avg"
    std::string prefix;  // of its tensors: "exp_avg."
    Tensor own;
  };
  static std::vector<Kind> kinds(const lab09::Part& part) {
    std::vector<Kind> kinds{{kModelSet, "", part.own_values}};
    for (const auto& [name, value] : part.optimizer->state())
      kinds.push_back({std::string(kOptimizerSet) + "." + name, name + ".", value});
    return kinds;
  }

  /// Calls visit(name, view) for the tensors of a part that lie in `flat` as its weights do.
  template <typename Visit>
  void for_tensors(size_t part, const Tensor& flat, const Visit& visit) {
    model_.bind(part, flat);
    for (const Parameter& parameter : model_.part_parameters(part))
      visit(parameter.name, parameter.value);
    if (const Tensor& values = sharded_.parts[part].values; values.defined())
      model_.bind(part, values);
    else
      model_.release(part);
  }

  /// The tensors that this rank writes into a checkpoint: whole ones, gathered part by part; every
  /// rank keeps about as many numbers as it holds in shards.
  std::vector<SavedGroup> own_tensors() {
    const MemoryOf kind_of_memory(MemoryKind::kCommunication);
    const int64_t all = parameter_count(model_.config());
    std::vector<SavedGroup> groups;
    int64_t before = 0;  // weights of earlier parts
    for (size_t p = 0; p < sharded_.parts.size(); ++p) {
      const lab09::Part& part = sharded_.parts[p];
      const Tensor whole =
          Tensor::empty({lab09::padded(part.size, world_.size())}, model_.device());
      int64_t first = before;
      size_t group = 0;
      for (const Kind& kind : kinds(part)) {
        if (p == 0) groups.push_back({kind.group, {}});
        world_.all_gather(whole, kind.own);
        first = before;
        for_tensors(p, whole, [&](const std::string& name, const Tensor& tensor) {
          if (first * world_.size() / all == world_.rank())
            groups[group].tensors.push_back({kind.prefix + name, tensor.device() == Device::kCpu
                                                                     ? tensor.clone()
                                                                     : tensor.to(Device::kCpu)});
          first += tensor.numel();
        });
        ++group;
      }
      before = first;
    }
    return groups;
  }

  /// This rank's shards, from any checkpoint of this model.
  void load(const std::filesystem::path& checkpoint) {
    const MemoryOf kind_of_memory(MemoryKind::kCommunication);
    CheckpointTensors weights(checkpoint, kModelSet);
    std::optional<CheckpointTensors> state;
    for (size_t p = 0; p < sharded_.parts.size(); ++p) {
      lab09::Part& part = sharded_.parts[p];
      const lab09::Range own = lab09::owned(part.size, world_.rank(), world_.size());
      const Tensor whole =
          Tensor::zeros({lab09::padded(part.size, world_.size())}, model_.device());
      for (const Kind& kind : kinds(part)) {
        const bool is_state = !kind.prefix.empty();
        if (is_state && !state) state.emplace(checkpoint, kOptimizerSet);
        for_tensors(p, whole, [&](const std::string& name, const Tensor& tensor) {
          (is_state ? *state : weights).copy_to(kind.prefix + name, tensor);
        });
        kind.own.copy_from(whole.rows(own.first, own.last));
        if (!is_state && part.values.defined()) part.values.copy_from(whole);
      }
    }
  }

  Surroundings around_;
  ProcessGroup& world_;
  TrainingFunctions functions_;
  Sampler sampler_;
  LlamaStage model_;
  lab09::Sharded sharded_;
  LossFunction loss_;
};

}  // namespace

std::unique_ptr<Trainee> shards(const Surroundings& around) {
  return std::make_unique<Shards>(around);
}

}  // namespace train
