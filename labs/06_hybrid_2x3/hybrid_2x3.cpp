// Lab 06 · two pipelines of three stages. You write this file; hybrid_2x3.h is its contract.
#include "labs/06_hybrid_2x3/hybrid_2x3.h"

#include "common/comm/agreement.h"
#include "common/error.h"
#include "common/todo.h"
#include "labs/02_gradient_allreduce/gradient_allreduce.h"
#include "labs/04_pipeline_1f1b/pipeline_1f1b.h"

namespace lab06 {

Place place_of(int rank, int pp) {
  // TODO(1): which pipeline, which stage? A line of integer arithmetic.
  lab::not_implemented("1", "labs/06_hybrid_2x3/hybrid_2x3.cpp");
}

Mesh make_mesh(lab::ProcessGroup& world, int dp, int pp) {
  // TODO(2): both groups of this rank.
  //  1. Refuse a world that is not dp * pp ranks large (lab::require).
  //  2. Which color do the ranks of a pipeline have in common? Which key puts them into the order
  //     of the stages?
  //  3. Which color do the replicas of a stage have in common?
  lab::not_implemented("2", "labs/06_hybrid_2x3/hybrid_2x3.cpp");
}

std::vector<int64_t> shard(std::span<const int64_t> order, const Place& place, int dp) {
  // TODO(3): this rank's shard of an epoch. Lab 02 did most of the work.
  lab::not_implemented("3", "labs/06_hybrid_2x3/hybrid_2x3.cpp");
}

int64_t total_targets(const lab::LlamaStage& stage, std::span<const lab::TokenBatch> microbatches,
                      Mesh& mesh) {
  // TODO(4): count this pipeline's targets, then add up over the pipelines. Who asks whom?
  lab::not_implemented("4", "labs/06_hybrid_2x3/hybrid_2x3.cpp");
}

double compute_gradients(lab::LlamaStage& stage, const lab::Schedule& schedule,
                         std::span<const lab::TokenBatch> microbatches, const LossFunction& loss,
                         Mesh& mesh) {
  // TODO(5): lab 05's waves inside the pipeline, then a sum across the pipelines, without shares.
  //  1. Refuse anything but one or more waves of the schedule's microbatches.
  //  2. What must be known before the first loss is computed? What must be forgotten?
  //  3. Which list of actions is this rank's?
  //  4. When is this stage done with its gradients? Which ranks does it have to wait for then?
  lab::not_implemented("5", "labs/06_hybrid_2x3/hybrid_2x3.cpp");
}

double train_step(lab::LlamaStage& stage, lab::Optimizer& optimizer, const lab::Schedule& schedule,
                  std::span<const lab::TokenBatch> microbatches, const LossFunction& loss,
                  float learning_rate, double max_gradient_norm, Mesh& mesh) {
  // TODO(6): gradients, clipping, update. In which group does each weight occur exactly once?
  lab::not_implemented("6", "labs/06_hybrid_2x3/hybrid_2x3.cpp");
}

double mean_loss(double loss, Mesh& mesh) {
  // TODO(7): the parts of all pipelines, added up, on every rank.
  lab::not_implemented("7", "labs/06_hybrid_2x3/hybrid_2x3.cpp");
}

}  // namespace lab06
