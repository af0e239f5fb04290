// A small model, and the ranks of a mesh that save it in parts.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "common/model/split.h"
#include "common/run/checkpoint/checkpoint_folder.h"
#include "common/run/checkpoint/checkpoint_parts.h"
#include "tests/unit/error_of.h"
#include "tests/unit/numeric.h"
#include "tests/unit/simulated_job.h"
#include "tests/unit/temp_folder.h"
#include "tests/unit/tiny_training.h"

namespace lab {
namespace checkpoint_parts {

namespace fs = std::filesystem;

inline constexpr uint64_t kSeed = 3;

inline LlamaConfig three_layers() {
  LlamaConfig config = tiny_config();
  config.layers = 3;
  return config;
}

inline StageSpan span_of(int stage, int stages) {
  const std::vector<int64_t> one_each(static_cast<size_t>(stages), 3 / stages);
  std::vector<int64_t> counts = one_each;
  counts[0] += 3 % stages;
  return spans_of(three_layers(), counts)[static_cast<size_t>(stage)];
}

inline TrainingState state_after(int64_t step) { return {.step = step, .plan = default_plan()}; }

/// A stage, and an Adam whose moments depend on the weights only: as if both had been trained.
struct Trained {
  Trained(int stage, int stages, uint64_t seed = kSeed)
      : model(three_layers(), span_of(stage, stages), Device::kCpu, seed),
        adam(model.parameters().numel(), {}, lab01::adam_update) {
    for (const auto& [name, state] : adam.state())
      for (int64_t i = 0; i < state.numel(); ++i)
        state.data()[i] = model.parameters().data()[i] * (name == "exp_avg" ? 0.5F : 0.25F);
  }

  std::vector<SavedGroup> groups() const { return saved_tensors(model, adam); }

  LlamaStage model;
  Adam adam;
};

inline bool same(const Trained& a, const Trained& b) {
  return test::same_bits(a.model.parameters(), b.model.parameters()) &&
         test::same_bits(a.adam.state()[0].value, b.adam.state()[0].value) &&
         test::same_bits(a.adam.state()[1].value, b.adam.state()[1].value);
}

inline std::vector<std::string> files_in(const fs::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder))
    names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

struct Mesh {
  int replicas;
  int stages;
  int ranks() const { return replicas * stages; }
};

class CheckpointPartsTest : public testing::Test {
 protected:
  struct Settings {
    int64_t step = 1;
    int broken_rank = -1;   // cannot write: two of its tensors have one name
    int distant_rank = -1;  // does not see the folder
    std::string tokenizer = "bytes of it";
  };

  /// Saves the model with the ranks of `mesh`. Returns what went wrong, rank by rank.
  SimulationReport save(const Mesh& mesh, const Settings& settings) {
    return simulate({.ranks = mesh.ranks(), .shuffle_ranks = true}, [&](ProcessGroup& world) {
      const RankOfModel rank = RankOfModel::in_mesh(world, mesh.stages);
      const Trained trained(rank.stage, rank.stages);
      auto groups = trained.groups();
      if (world.rank() == settings.broken_rank)
        for (SavedGroup& group : groups) group.tensors[1].name = group.tensors[0].name;
      const TrainingState state = state_after(settings.step);
      const bool distant = world.rank() == settings.distant_rank;
      const fs::path saved = save_checkpoint_parts(
          world.rank() == 0 ? run_ : fs::path(), rank, state, trained.model.config(), groups,
          {settings.tokenizer, 1, 2}, [&](const fs::path& file, const std::string& token) {
            EXPECT_TRUE(sees_file(file, token));
            EXPECT_FALSE(sees_file(file, token + "x"));
            return !distant;
          });
      EXPECT_EQ(saved, run_ / checkpoint_name(settings.step)) << "on every rank";
    });
  }

  fs::path saved(const Mesh& mesh, int64_t step = 1) {
    const SimulationReport report = save(mesh, {.step = step});
    EXPECT_TRUE(report.succeeded()) << explain(report);
    return run_ / checkpoint_name(step);
  }

  /// The stage of another cut as a checkpoint has it.
  static Trained loaded(const fs::path& checkpoint, int stage, int stages) {
    Trained trained(stage, stages, /*seed=*/99);
    load_for_training(checkpoint, trained.model, trained.adam);
    return trained;
  }

  static std::string load_error(const fs::path& checkpoint) {
    return error_of([&] { load_model(checkpoint); });
  }

  TempFolder folder_;
  fs::path run_ = folder_.path() / "run";
};

}  // namespace checkpoint_parts
}  // namespace lab
