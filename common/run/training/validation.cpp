#include "common/run/training/validation.h"

#include <algorithm>
#include <vector>

#include "common/comm/agreement.h"

namespace lab {

std::optional<double> validation_loss(LlamaStage& stage, const TokenDataset& data,
                                      const RunPlan& plan, const LossFunction& loss,
                                      const ValidatingRanks& ranks) {
  const int64_t length = plan.model.context;
  const int64_t available = data.sequence_count(Split::kValidation, length);
  const int64_t wanted = std::min(available, plan.validation_batches * plan.batch);
  if (wanted == 0) return std::nullopt;
  const int rank = ranks.replicas != nullptr ? ranks.replicas->rank() : 0;
  const int size = ranks.replicas != nullptr ? ranks.replicas->size() : 1;
  double sum = 0.0;  // of the losses of all targets
  double targets = 0.0;
  for (int64_t first = rank * plan.batch; first < wanted; first += size * plan.batch) {
    std::vector<int64_t> indices;
    for (int64_t i = first; i < std::min(first + plan.batch, wanted); ++i)
      indices.push_back(i * available / wanted);
    const TokenBatch batch = data.batch(Split::kValidation, indices, length);
    const Tensor logits = ranks.forward ? ranks.forward(batch) : stage.forward(batch);
    if (stage.span().has_head) sum += loss(logits, batch, /*total_targets=*/1);
    stage.discard();
    targets += static_cast<double>(batch.target_count());
  }
  if (ranks.replicas != nullptr) {
    sum = sum_over(*ranks.replicas, sum);
    targets = sum_over(*ranks.replicas, targets);
  }
  if (ranks.pipeline != nullptr) sum = from_last_stage(sum, *ranks.pipeline);
  return sum / targets;
}

}  // namespace lab
