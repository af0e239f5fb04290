// Validation loss: how well the model predicts stories that it was not trained on.
#include "common/run/training/validation.h"

#include <algorithm>
#include <vector>

#include "common/comm/agreement.h"

namespace lab {
namespace {

struct LossSum {
  double loss = 0.0;  // of all targets together
  int64_t targets = 0;
};

/// How many sequences of the validation split are used.
int64_t sequences_wanted(const TokenDataset& data, const RunPlan& plan) {
  const int64_t available = data.sequence_count(Split::kValidation, plan.model.context);
  return std::min(available, plan.validation_batches * plan.batch);
}

/// Over every `ranks`-th microbatch, beginning with number `rank`. `sum_of(batch)` is the sum of
/// the cross-entropies of one.
LossSum sum_losses(const TokenDataset& data, const RunPlan& plan, int rank, int ranks,
                   const std::function<double(const TokenBatch&)>& sum_of) {
  const int64_t length = plan.model.context;
  const int64_t available = data.sequence_count(Split::kValidation, length);
  const int64_t wanted = sequences_wanted(data, plan);
  LossSum sum;
  for (int64_t first = rank * plan.batch; first < wanted; first += ranks * plan.batch) {
    std::vector<int64_t> indices;
    for (int64_t i = first; i < std::min(first + plan.batch, wanted); ++i)
      indices.push_back(i * available / wanted);
    const TokenBatch batch = data.batch(Split::kValidation, indices, length);
    sum.loss += sum_of(batch);
    sum.targets += batch.target_count();
  }
  return sum;
}

/// With the whole model.
LossSum sum_losses(LlamaStage& model, const TokenDataset& data, const RunPlan& plan,
                   const LossFunction& loss, int rank, int ranks) {
  return sum_losses(data, plan, rank, ranks, [&](const TokenBatch& batch) {
    const double sum = loss(model.forward(batch), batch, /*total_targets=*/1);
    model.discard();
    return sum;
  });
}

}  // namespace

std::optional<double> validation_loss(LlamaStage& model, const TokenDataset& data,
                                      const RunPlan& plan, const LossFunction& loss) {
  if (sequences_wanted(data, plan) == 0) return std::nullopt;
  const LossSum sum = sum_losses(model, data, plan, loss, 0, 1);
  return sum.loss / static_cast<double>(sum.targets);
}

std::optional<double> validation_loss(LlamaStage& model, const TokenDataset& data,
                                      const RunPlan& plan, const LossFunction& loss,
                                      ProcessGroup& group) {
  if (sequences_wanted(data, plan) == 0) return std::nullopt;
  const LossSum mine = sum_losses(model, data, plan, loss, group.rank(), group.size());
  const Tensor sums =
      Tensor::from({static_cast<float>(mine.loss), static_cast<float>(mine.targets)}, {2});
  group.all_reduce(sums);
  return double{sums.data()[0]} / double{sums.data()[1]};
}

std::optional<double> validation_loss(LlamaStage& stage, const TokenDataset& data,
                                      const RunPlan& plan, const LossFunction& loss,
                                      const PipelineForward& forward, ProcessGroup& pipeline,
                                      ProcessGroup* replicas) {
  if (sequences_wanted(data, plan) == 0) return std::nullopt;
  const auto sum_of = [&](const TokenBatch& batch) {
    const Tensor logits = forward(batch);
    const double batch_sum = stage.span().has_head ? loss(logits, batch, /*total_targets=*/1) : 0.0;
    stage.discard();
    return batch_sum;
  };
  const int rank = replicas != nullptr ? replicas->rank() : 0;
  const int ranks = replicas != nullptr ? replicas->size() : 1;
  LossSum sum = sum_losses(data, plan, rank, ranks, sum_of);
  auto targets = static_cast<double>(sum.targets);
  if (replicas != nullptr) {
    sum.loss = sum_over(*replicas, sum.loss);
    targets = sum_over(*replicas, targets);
  }
  return from_last_stage(sum.loss, pipeline) / targets;
}

}  // namespace lab
