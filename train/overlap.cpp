#include "train/overlap.h"

#include <vector>

#include "labs/04_pipeline_1f1b/pipeline_1f1b.h"

namespace train {

lab08::Reducer make_reducer(const lab::LlamaStage& stage, lab06::Mesh& mesh) {
  constexpr int64_t kCapacity = 1'000'000;  // bytes; as in lab 08's program
  constexpr int64_t kFirstCapacity = 256'000;
  return lab08::make_reducer(stage, kCapacity, kFirstCapacity, mesh.replicas);
}

double overlapped_step(lab::LlamaStage& stage, lab::Optimizer& optimizer,
                       const lab::Schedule& schedule, std::span<const lab::TokenBatch> microbatches,
                       const lab::LossFunction& loss, float learning_rate, double max_gradient_norm,
                       lab06::Mesh& mesh, lab08::Reducer& reducer) {
  const auto wave = static_cast<size_t>(schedule.microbatches);
  const lab::ActionList& actions = schedule.stages[static_cast<size_t>(mesh.place.stage)];
  int64_t targets = 0;  // of this pipeline: every stage has read them
  for (const lab::TokenBatch& microbatch : microbatches) targets += microbatch.target_count();

  // Here the loss is a mean over the pipeline's own targets, and the reducer weighs the pipelines:
  // the first bucket need not wait for the number of all targets.
  stage.zero_gradients();
  lab08::begin(reducer, targets);
  double own_loss = 0.0;
  std::vector<size_t> passes(reducer.gradients.size());  // of the last wave, by parameter
  for (size_t first = 0; first < microbatches.size(); first += wave) {
    if (first + wave == microbatches.size())
      stage.when_gradient_ready([&](size_t parameter) {
        if (++passes[parameter] == wave) lab08::ready(reducer, parameter);
      });
    own_loss += lab05::run_actions(stage, actions, microbatches.subspan(first, wave), loss, targets,
                                   mesh.pipeline);
  }
  stage.when_gradient_ready({});
  lab08::finish(reducer);

  if (max_gradient_norm > 0.0) lab04::clip_gradients(stage, max_gradient_norm, mesh.pipeline);
  optimizer.step(stage.parameters(), stage.gradients(), learning_rate);
  const float all_targets = reducer.total.data()[0];
  return all_targets > 0 ? own_loss * static_cast<double>(targets) / all_targets : 0.0;
}

}  // namespace train
