// What the given functions do. They refuse what they cannot answer, and keep a record.
#include "common/tensor/error.h"
#include "labs/06_hybrid_2x3/hybrid_2x3.h"
#include "tests/labs/02_gradient_allreduce/step_log.h"
#include "tests/labs/06_hybrid_2x3/correct_targets.h"
#include "tests/labs/06_hybrid_2x3/gradient_log.h"
#include "tests/labs/06_hybrid_2x3/rank_mesh.h"

namespace lab06 {

double given_gradients(lab::LlamaStage& stage, const lab::Schedule& schedule,
                       std::span<const lab::TokenBatch> microbatches, const LossFunction& loss,
                       Mesh& mesh);

namespace {

void check_call(const lab::Schedule& schedule, std::span<const lab::TokenBatch> microbatches) {
  const GradientLog& log = gradient_log();
  if (log.schedule == nullptr) return;
  lab::require(
      microbatches.size() == log.microbatches.size(),
      "train_step has {} microbatches and calls compute_gradients with {}: it takes all of "
      "them at once, wave by wave",
      log.microbatches.size(), microbatches.size());
  lab::require(schedule == *log.schedule,
               "train_step calls compute_gradients with another schedule than its own");
}

}  // namespace

double given_gradients(lab::LlamaStage& stage, const lab::Schedule& schedule,
                       std::span<const lab::TokenBatch> microbatches, const LossFunction& loss,
                       Mesh& mesh) {
  check_call(schedule, microbatches);
  lab02::log_event("gradients");
  GradientLog& log = gradient_log();
  log.before = last_operation(mesh.pipeline);
  const int64_t total = given_total_targets(stage, microbatches, mesh);
  const lab::ActionList& actions = schedule.stages[static_cast<size_t>(mesh.place.stage)];
  const auto m = static_cast<size_t>(schedule.microbatches);

  stage.zero_gradients();
  double sum = 0.0;
  for (size_t done = 0; done < microbatches.size(); done += m)
    sum += lab05::run_actions(stage, actions, microbatches.subspan(done, m), loss, total,
                              mesh.pipeline);
  mesh.replicas.all_reduce(stage.gradients());
  log.behind = last_operation(mesh.pipeline);
  log.returned = sum;
  return sum;
}

}  // namespace lab06
