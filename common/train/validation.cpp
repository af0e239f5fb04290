// Validation loss: how well the model predicts stories that it has never learnt from.
#include "common/train/validation.h"

#include <algorithm>
#include <vector>

namespace lab {

std::optional<double> validation_loss(LlamaStage& model, const TokenDataset& data,
                                      const TrainOptions& options, LossFunction loss) {
  const int64_t length = options.model.context;
  const int64_t available = data.sequence_count(Split::kValidation, length);
  const int64_t wanted = std::min(available, options.validation_batches * options.batch);
  if (wanted == 0) return std::nullopt;

  double sum = 0.0;
  int64_t targets = 0;
  for (int64_t first = 0; first < wanted; first += options.batch) {
    std::vector<int64_t> indices;
    for (int64_t i = first; i < std::min(first + options.batch, wanted); ++i)
      indices.push_back(i * available / wanted);
    const TokenBatch batch = data.batch(Split::kValidation, indices, length);
    sum += loss(model.forward(batch), batch, /*total_targets=*/1);
    targets += batch.target_count();
    model.discard();
  }
  return sum / static_cast<double>(targets);
}

}  // namespace lab
