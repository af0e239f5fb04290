// Lab 07 · trains a LLaMA as lab 02 does, but adds up the gradients with your all-reduce. This
// program is given; you write what it calls from allreduce.h.
//
// With --simulate it trains nothing and shows an all-reduce in simulated time. "Changed" marks the
// only place of the training loop that differs from lab 02's.
#include <optional>
#include <span>
#include <vector>

#include "common/data/sampler.h"
#include "common/error.h"
#include "common/model/llama_stage.h"
#include "common/ops/ops.h"
#include "common/optim/clip.h"
#include "common/run/options/main_guard.h"
#include "common/run/training/run_program.h"
#include "common/run/training/settle_plan.h"
#include "common/run/training/start_up.h"
#include "common/run/training/training_functions.h"
#include "common/run/training/training_run.h"
#include "common/run/training/validation.h"
#include "labs/02_gradient_allreduce/gradient_allreduce.h"
#include "labs/07_allreduce/algorithms.h"
#include "labs/07_allreduce/main_simulation.h"

namespace {

using namespace lab;

struct Choices {
  std::optional<lab07::Algorithm> algorithm = lab07::Algorithm::kRing;  // none: Gloo's own
  int hosts = 1;
};

/// The sum over all ranks, by the chosen all-reduce.
class Sum {
 public:
  Sum(const Choices& choices, ProcessGroup& world) : choices_(choices), world_(world) {
    require(world.size() % choices.hosts == 0, "--hosts {}: {} ranks cannot be divided equally",
            choices.hosts, world.size());
    if (choices.algorithm == lab07::Algorithm::kHierarchical)
      hosts_.emplace(lab07::make_hosts(world, world.size() / choices.hosts));
  }

  void operator()(const Tensor& tensor) {
    if (!choices_.algorithm) return world_.all_reduce(tensor);
    lab07::all_reduce(*choices_.algorithm, tensor, ReduceOp::kSum, world_,
                      hosts_ ? &*hosts_ : nullptr);
  }

 private:
  Choices choices_;
  ProcessGroup& world_;
  std::optional<lab07::Hosts> hosts_;
};

/// Lab 02's step. Changed: the gradients are added up by `sum`.
double train_step(LlamaStage& model, Optimizer& optimizer, std::span<const TokenBatch> microbatches,
                  const LossFunction& loss, float learning_rate, double max_gradient_norm,
                  ProcessGroup& world, Sum& sum) {
  int64_t targets = 0;
  for (const TokenBatch& batch : microbatches) targets += batch.target_count();
  const Tensor total = Tensor::from({static_cast<float>(targets)}, {1});
  world.all_reduce(total);

  model.zero_gradients();
  double own_loss = 0;
  for (const TokenBatch& batch : microbatches) {
    const Tensor logits = model.forward(batch);
    own_loss += loss(logits, batch, targets);
    model.backward(logits);
  }
  const float share = targets > 0 ? static_cast<float>(targets) / total.data()[0] : 0.0F;
  scale(model.gradients(), share);
  sum(model.gradients());
  if (max_gradient_norm > 0) clip_gradients(model, max_gradient_norm);
  optimizer.step(model.parameters(), model.gradients(), learning_rate);
  return own_loss;
}

int train(Job& job, const RunPlan& plan, const Choices& choices) {
  ProcessGroup& world = job.world();
  const Setup setup(job, plan);
  const TrainingFunctions functions = training_functions(setup.device);
  Sum sum(choices, world);

  // Everything else as in lab 02.
  Sampler sampler(setup.sequences(), setup.seed, [&world](std::span<const int64_t> order) {
    return lab02::shard(order, world.rank(), world.size());
  });
  LlamaStage model(setup.model, StageSpan::whole(setup.model), setup.device,
                   setup.seed + static_cast<uint64_t>(world.rank()));
  lab02::broadcast_parameters(model, world);
  const auto optimizer = make_optimizer(plan, model, functions.adam);
  const auto validate = [&] {
    return validation_loss(model, setup.data, plan, functions.loss, {.replicas = &world});
  };
  TrainingRun run(plan, {model, *optimizer, sampler, setup.tokenizer, setup.data, validate}, &job);
  const LearningRate learning_rate = plan.learning_rates();
  for (int64_t step = run.begin(); run.goes_on(step); ++step) {
    const std::vector<TokenBatch> microbatches = run.next_microbatches();
    const double own_loss = train_step(model, *optimizer, microbatches, functions.loss,
                                       learning_rate.at(step), plan.clip, world, sum);
    if (run.record_due(step))
      run.record(step, lab02::average_loss(own_loss, target_count(microbatches), world));
    if (run.checkpoint_due(step)) run.save_checkpoint();
  }
  run.finish();
  run.tell_story();
  return run.exit_code();
}

int start(int argc, char** argv) {
  Choices choices;
  lab07::Simulation simulation;
  const auto add_options = [&](CommandLine& line) {
    line.group("All-reduce");
    std::map<std::string, std::optional<lab07::Algorithm>> names = {{"gloo", std::nullopt}};
    for (const auto& [name, algorithm] : lab07::algorithms_by_name()) names[name] = algorithm;
    line.add_choice<std::optional<lab07::Algorithm>>(
            "--allreduce", choices.algorithm, names,
            "who adds up the gradients: your ring (default), doubling, hierarchical or root, or "
            "Gloo")
        .carried();
    line.add("--hosts", choices.hosts, "H",
             "for hierarchical: how many hosts to divide the ranks among; default: 1")
        .within(1, kMaxWorldSize)
        .carried();
    lab07::add_simulation_options(line, simulation);
  };
  const RunPlan plan =
      settle_plan(argc, argv,
                  {.about = "Trains a LLaMA on several ranks, with an all-reduce made of messages.",
                   .run_name = "messages",
                   .division = Division::kReplicas,
                   .batch = 1,
                   .log_every = 10,
                   .add_options = add_options});
  if (simulation.wanted) {
    require(choices.algorithm.has_value(), "--simulate: Gloo's all-reduce is not made of messages");
    const int ranks = plan.launch.ranks > 0 ? plan.launch.ranks : 3;
    return lab07::show(*choices.algorithm, ranks, choices.hosts, simulation);
  }
  require(plan.device == "cpu", "--device {}: lab::combine adds in host memory", plan.device);
  return run_program(plan, argc, argv, [&](Job& job, const RunPlan& settled) {
    return train(job, settled, choices);
  });
}

}  // namespace

int main(int argc, char** argv) { return lab::run_main(argc, argv, start); }
