// TrainingState: what a run must save, apart from weights and optimizer, to resume with the same
// bits.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

#include "common/data/sampler.h"
#include "common/run/options/run_plan.h"

namespace lab {

struct TrainingState {
  int64_t step = 0;             // steps done
  int64_t optimizer_steps = 0;  // updates done, as the optimizer counts them
  SamplerState sampler = {};
  uint64_t data_fingerprint = 0;
  double seconds = 0.0;  // of training so far
  double last_loss = 0.0;
  std::optional<double> first_validation_loss = {};  // before the first step
  RunPlan plan;
};

/// Writes `folder`/training.json.
void save_training_state(const std::filesystem::path& folder, const TrainingState& state);

/// Reads it from a checkpoint, after checking its checksum. Throws Error if the checkpoint has none
/// (a foreign model: it can be used, but not trained further), it is damaged, or it holds numbers
/// that no run can have.
TrainingState load_training_state(const std::filesystem::path& checkpoint);

}  // namespace lab
