// Lab 06 · two pipelines of three stages: solution.
#include "labs/06_hybrid_2x3/hybrid_2x3.h"

#include <fmt/format.h>

#include "common/comm/agreement.h"
#include "common/error.h"
#include "labs/02_gradient_allreduce/gradient_allreduce.h"
#include "labs/04_pipeline_1f1b/pipeline_1f1b.h"

namespace lab06 {

// Task 1
Place place_of(int rank, int pp) { return {.pipeline = rank / pp, .stage = rank % pp}; }

// Task 2
Mesh make_mesh(lab::ProcessGroup& world, int dp, int pp) {
  lab::require(world.size() == dp * pp, "{} pipelines of {} stages need {} ranks, not {}", dp, pp,
               dp * pp, world.size());
  const Place place = place_of(world.rank(), pp);
  lab::ProcessGroup pipeline =
      world.split(place.pipeline, place.stage, fmt::format("pipeline {}", place.pipeline));
  lab::ProcessGroup replicas =
      world.split(place.stage, place.pipeline, fmt::format("replicas of stage {}", place.stage));
  return {place, std::move(pipeline), std::move(replicas)};
}

// Task 3
std::vector<int64_t> shard(std::span<const int64_t> order, const Place& place, int dp) {
  return lab02::shard(order, place.pipeline, dp);
}

// Task 4
int64_t total_targets(const lab::LlamaStage& stage, std::span<const lab::TokenBatch> microbatches,
                      Mesh& mesh) {
  if (!stage.span().has_head) return 0;
  int64_t own = 0;
  for (const lab::TokenBatch& microbatch : microbatches) own += microbatch.target_count();
  return static_cast<int64_t>(lab::sum_over(mesh.replicas, static_cast<double>(own)));
}

// Task 5
double compute_gradients(lab::LlamaStage& stage, const lab::Schedule& schedule,
                         std::span<const lab::TokenBatch> microbatches, const LossFunction& loss,
                         Mesh& mesh) {
  const auto wave = static_cast<size_t>(schedule.microbatches);
  lab::require(!microbatches.empty() && microbatches.size() % wave == 0,
               "{} microbatches: not one or more waves of the schedule's {}", microbatches.size(),
               wave);
  const lab::ActionList& actions = schedule.stages[static_cast<size_t>(mesh.place.stage)];
  const int64_t targets = total_targets(stage, microbatches, mesh);

  stage.zero_gradients();
  double loss_sum = 0.0;
  for (size_t first = 0; first < microbatches.size(); first += wave)
    loss_sum += lab05::run_actions(stage, actions, microbatches.subspan(first, wave), loss, targets,
                                   mesh.pipeline);
  mesh.replicas.all_reduce(stage.gradients());
  return loss_sum;
}

// Task 6
double train_step(lab::LlamaStage& stage, lab::Optimizer& optimizer, const lab::Schedule& schedule,
                  std::span<const lab::TokenBatch> microbatches, const LossFunction& loss,
                  float learning_rate, double max_gradient_norm, Mesh& mesh) {
  const double own_loss = compute_gradients(stage, schedule, microbatches, loss, mesh);
  if (max_gradient_norm > 0.0) lab04::clip_gradients(stage, max_gradient_norm, mesh.pipeline);
  optimizer.step(stage.parameters(), stage.gradients(), learning_rate);
  return own_loss;
}

// Task 7
double mean_loss(double loss, Mesh& mesh) {
  const double of_last_stages = lab::sum_over(mesh.replicas, loss);
  return lab::from_last_stage(of_last_stages, mesh.pipeline);
}

}  // namespace lab06
