// Checkpoints in parts: written by the ranks of a mesh together or not at all, loaded by any other.
#include "common/run/checkpoint/checkpoint_parts.h"

#include <gtest/gtest.h>

#include <cstring>
#include <nlohmann/json.hpp>

#include "common/io/safetensors.h"
#include "common/model/slice.h"
#include "common/model/stage_passes.h"
#include "common/ops/ops.h"
#include "common/run/checkpoint/checkpoint_folder.h"
#include "tests/unit/checkpoint_parts_run.h"
#include "tests/unit/error_of.h"
#include "tests/unit/file_size_limit.h"
#include "tests/unit/numeric.h"
#include "tests/unit/raw_files.h"

namespace lab::checkpoint_parts_test {
namespace {

using namespace checkpoint_parts;

/// The numbers of a safetensors file, without its header.
std::string numbers_in(const fs::path& path) {
  const std::string bytes = read_all(path);
  uint64_t length = 0;
  std::memcpy(&length, bytes.data(), sizeof length);
  return bytes.substr(sizeof length + length);
}

TEST_F(CheckpointPartsTest, AnyNumberOfRanksWritesWhatAnyOtherReads) {
  for (const Mesh mesh : {Mesh{1, 3}, Mesh{2, 3}, Mesh{2, 1}, Mesh{3, 2}, Mesh{1, 1}}) {
    const fs::path checkpoint = saved(mesh);
    for (const int stages : {1, 2, 3})
      for (int stage = 0; stage < stages; ++stage)
        EXPECT_TRUE(same(loaded(checkpoint, stage, stages), Trained(stage, stages)))
            << mesh.replicas << " x " << mesh.stages << ", loaded by stage " << stage << " of "
            << stages;
    const LlamaStage whole = load_model(checkpoint);
    EXPECT_TRUE(test::same_bits(whole.parameters(), Trained(0, 1).model.parameters()));
    EXPECT_EQ(load_training_state(checkpoint).step, 1);
    EXPECT_EQ(error_of([&] { verify_checkpoint(checkpoint); }), "");
    EXPECT_EQ(files_in(run_), std::vector<std::string>{"checkpoint-000001"});
    fs::remove_all(run_);
  }
}

/// Passes of a model that nobody runs.
class NoPasses final : public StagePasses {
 public:
  void embedding_forward(std::span<const int32_t>, const Weight&, const Tensor&) override {}
  void embedding_backward(std::span<const int32_t>, const Tensor&, const Weight&) override {}
  void layer_forward(const LayerShape&, const LayerWeights&, const Tensor&, const Tensor&,
                     LayerActivations&, const Tensor&) override {}
  void layer_backward(const LayerShape&, const LayerWeights&, const Tensor&, const Tensor&,
                      LayerActivations&, const Tensor&) override {}
  void head_forward(const Tensor&, const Weight&, const Tensor&) override {}
  void head_backward(const Tensor&, const Tensor&, const Weight&, const Tensor&) override {}
};

/// Saved by two slices, read by a whole model and by one of two slices: the same numbers.
TEST_F(CheckpointPartsTest, SlicesOfLayersMakeWholeTensors) {
  const LlamaConfig config = three_layers();
  const Trained whole(0, 1);
  const auto slice_of_model = [&](int rank, uint64_t seed) {
    return LlamaStage(config, StageSpan::whole(config), {.rank = rank, .ranks = 2},
                      std::make_shared<NoPasses>(), seed);
  };
  const auto report = simulate({.ranks = 2}, [&](ProcessGroup& slices) {
    LlamaStage slice = slice_of_model(slices.rank(), kSeed);
    Adam adam(slice.parameters().numel(), {}, lab01::adam_update);
    for (const auto& [name, state] : adam.state()) {
      state.copy_from(slice.parameters());
      scale(state, name == "exp_avg" ? 0.5F : 0.25F);
    }
    const std::vector<SavedGroup> groups = gathered(saved_tensors(slice, adam), slice, slices);
    EXPECT_EQ(groups[0].tensors.empty(), slices.rank() > 0);
    if (slices.rank() == 0)
      save_checkpoint(run_, state_after(1), config, groups, {"bytes of it", 1, 2});
  });
  ASSERT_EQ(report.errors, std::vector<std::string>(2));
  const fs::path checkpoint = run_ / checkpoint_name(1);
  EXPECT_TRUE(same(loaded(checkpoint, 0, 1), whole));

  LlamaStage other = slice_of_model(1, kSeed + 1);
  Adam adam(other.parameters().numel(), {}, lab01::adam_update);
  load_for_training(checkpoint, other, adam);
  EXPECT_TRUE(test::same_bits(other.parameters(), slice_of_model(1, kSeed).parameters()));
  for (int64_t i = 0; i < other.parameters().numel(); ++i)
    ASSERT_EQ(adam.state()[1].value.data()[i], 0.25F * other.parameters().data()[i]);
}

TEST_F(CheckpointPartsTest, HasTheFilesOfHuggingFace) {
  const fs::path checkpoint = saved({2, 3});
  EXPECT_EQ(files_in(checkpoint),
            (std::vector<std::string>{
                "checksums.json", "config.json", "model-00001-of-00003.safetensors",
                "model-00002-of-00003.safetensors", "model-00003-of-00003.safetensors",
                "model.safetensors.index.json", "optimizer.exp_avg-00001-of-00003.safetensors",
                "optimizer.exp_avg-00002-of-00003.safetensors",
                "optimizer.exp_avg-00003-of-00003.safetensors",
                "optimizer.exp_avg_sq-00001-of-00003.safetensors",
                "optimizer.exp_avg_sq-00002-of-00003.safetensors",
                "optimizer.exp_avg_sq-00003-of-00003.safetensors",
                "optimizer.safetensors.index.json", "tokenizer.model", "training.json"}));
  const auto index = nlohmann::json::parse(read_all(checkpoint / "model.safetensors.index.json"));
  EXPECT_EQ(index["metadata"]["total_size"], 4 * parameter_count(three_layers()));
  EXPECT_EQ(index["weight_map"].size(), 3U + 9U * 3U);
  EXPECT_EQ(index["weight_map"]["lm_head.weight"], "model-00003-of-00003.safetensors");
  const SafetensorsFile part(checkpoint / "model-00002-of-00003.safetensors");
  EXPECT_EQ(part.metadata().at("format"), "pt");
  EXPECT_EQ(part.names().size(), 9U);
  const auto checksums = nlohmann::json::parse(read_all(checkpoint / "checksums.json"));
  EXPECT_EQ(checksums["files"].size(), 14U) << "every file but the list";
}

TEST_F(CheckpointPartsTest, InTheOrderOfTheirNamesThePartsAreTheFileOfOneProcess) {
  const fs::path parts = saved({1, 3}, 1);
  const Trained whole(0, 1);
  const fs::path single = save_checkpoint(run_, state_after(2), three_layers(), whole.groups(), {});
  for (const std::string set : {"model", "optimizer"}) {
    std::string numbers;
    for (const std::string& name : files_in(parts))
      if (name.starts_with(set) && name.ends_with(".safetensors"))
        numbers += numbers_in(parts / name);
    EXPECT_EQ(numbers, numbers_in(single / (set + ".safetensors"))) << set;
  }
}

TEST_F(CheckpointPartsTest, ReplicasShareTheWork) {
  const SimulationReport report = save({2, 1}, {});
  ASSERT_TRUE(report.succeeded()) << explain(report);
  EXPECT_EQ(files_in(run_ / "checkpoint-000001"),
            (std::vector<std::string>{
                "checksums.json", "config.json", "model.safetensors",
                "optimizer.exp_avg.safetensors", "optimizer.exp_avg_sq.safetensors",
                "optimizer.safetensors.index.json", "tokenizer.model", "training.json"}));
  fs::remove_all(run_);
  const SimulationReport broken = save({2, 1}, {.broken_rank = 1});  // has exp_avg only
  EXPECT_TRUE(contains(broken.errors[0], "exp_avg.model.embed_tokens.weight")) << broken.errors[0];
  EXPECT_FALSE(contains(broken.errors[0], "exp_avg_sq")) << broken.errors[0];
}

TEST_F(CheckpointPartsTest, NoWeightsTravelWhereAllSeeTheFolder) {
  const SimulationReport report = save({2, 3}, {});
  ASSERT_TRUE(report.succeeded()) << explain(report);
  const auto sent = [](const SimulationReport& of, size_t rank) {
    return of.snapshots[rank].traffic[static_cast<size_t>(OpKind::kSend)].bytes;
  };
  const size_t stage_bytes = Trained(1, 3).model.parameters().bytes();
  for (size_t rank = 0; rank < 6; ++rank) EXPECT_LT(sent(report, rank), 4000U) << rank;
  fs::remove_all(run_);
  const SimulationReport distant = save({2, 3}, {.distant_rank = 1});
  ASSERT_TRUE(distant.succeeded()) << explain(distant);
  EXPECT_GT(sent(distant, 1), stage_bytes);
}

TEST_F(CheckpointPartsTest, ARankThatDoesNotSeeTheFolderSendsItsTensors) {
  for (const Mesh mesh : {Mesh{2, 3}, Mesh{2, 1}}) {
    for (int distant = 1; distant < mesh.ranks(); ++distant) {
      const SimulationReport report = save(mesh, {.distant_rank = distant});
      ASSERT_TRUE(report.succeeded()) << explain(report);
      const fs::path checkpoint = run_ / "checkpoint-000001";
      EXPECT_TRUE(same(loaded(checkpoint, 0, 1), Trained(0, 1))) << distant;
      EXPECT_EQ(error_of([&] { verify_checkpoint(checkpoint); }), "");
      fs::remove_all(run_);
    }
  }
}

// All ranks must end with an error that contains `reason`, and nothing may be left but `before`.
void expect_failure(const SimulationReport& report, const std::string& reason, const fs::path& run,
                    const std::vector<std::string>& before) {
  EXPECT_FALSE(report.diagnosis) << explain(report);
  for (const std::string& error : report.errors) {
    EXPECT_TRUE(contains(error, reason)) << "[" << error << "] instead of " << reason;
    EXPECT_EQ(error, report.errors[0]) << "every rank knows the same";
    EXPECT_FALSE(contains(error, "\n")) << error;
  }
  EXPECT_EQ(files_in(run), before);
}

TEST_F(CheckpointPartsTest, IfOneRankFailsAllDoAndTheOlderCheckpointStays) {
  const fs::path good = saved({2, 3}, 1);
  const std::vector<std::string> before = {"checkpoint-000001"};
  for (int broken = 0; broken < 6; ++broken)
    expect_failure(save({2, 3}, {.step = 2, .broken_rank = broken}),
                   fmt::format("rank {}: cannot store two tensors", broken), run_, before);
  {
    const FileSizeLimit limit(2000);  // no weights fit
    expect_failure(save({2, 3}, {.step = 2}), "rank 0: ", run_, before);
  }
  {
    const FileSizeLimit limit(100'000);  // weights fit, what rank 0 adds does not
    expect_failure(save({1, 3}, {.step = 2, .tokenizer = std::string(200'000, 'x')}),
                   "tokenizer.model", run_, before);
  }
  EXPECT_TRUE(same(loaded(good, 0, 1), Trained(0, 1)));
}

TEST_F(CheckpointPartsTest, WhereRankZeroFailsWithADistantPartItsSenderDoesNotWait) {
  const SimulationReport report = save({1, 3}, {.broken_rank = 2, .distant_rank = 2});
  expect_failure(report, "rank 2: cannot store two tensors", run_, {});
}

TEST_F(CheckpointPartsTest, ARunFolderThatCannotExistIsAnErrorOnEveryRank) {
  write_all(folder_.path() / "file", "");
  run_ = folder_.path() / "file" / "run";
  const SimulationReport report = save({1, 3}, {});
  EXPECT_FALSE(report.diagnosis);
  for (const std::string& error : report.errors)
    EXPECT_TRUE(contains(error, "cannot create")) << error;
}

TEST_F(CheckpointPartsTest, ARankThatDiesLeavesNothingThatCounts) {
  const fs::path good = saved({1, 3}, 1);
  for (int operation = 1; operation <= 7; ++operation) {
    for (const int victim : {1, 2}) {
      const auto report =
          simulate({.ranks = 3, .death = SimulationOptions::Death{victim, operation}},
                   [&](ProcessGroup& world) {
                     const Trained trained(world.rank(), 3);
                     save_checkpoint_parts(run_, RankOfModel::in_pipeline(world), state_after(2),
                                           three_layers(), trained.groups(), {});
                     world.barrier();  // a rank that dies here dies after the checkpoint is there
                   });
      EXPECT_FALSE(report.succeeded()) << operation;
      const std::vector<std::string> left = files_in(run_);
      if (left.size() == 1) {
        EXPECT_EQ(left, std::vector<std::string>{"checkpoint-000001"});
      } else {
        EXPECT_EQ(left, (std::vector<std::string>{"checkpoint-000001", "checkpoint-000002"}));
        EXPECT_TRUE(same(loaded(run_ / left[1], 0, 1), Trained(0, 1))) << operation;
        fs::remove_all(run_ / left[1]);
      }
    }
  }
  EXPECT_TRUE(same(loaded(good, 0, 1), Trained(0, 1)));
}

TEST_F(CheckpointPartsTest, RanksThatAreNoMeshAreRefused) {
  const auto report = simulate({.ranks = 4}, [&](ProcessGroup& world) {
    EXPECT_TRUE(contains(error_of([&] { RankOfModel::in_mesh(world, 3); }),
                         "4 ranks do not make pipelines of 3 stages"));
    const RankOfModel rank = RankOfModel::in_mesh(world, 2);
    EXPECT_EQ(rank.stage, world.rank() % 2);
    EXPECT_EQ(rank.replica, world.rank() / 2);
    EXPECT_EQ(rank.replicas, 2);
  });
  EXPECT_TRUE(report.succeeded()) << explain(report);
}

TEST_F(CheckpointPartsTest, PartsThatAreNotTheWholeModelAreRefused) {
  const auto report = simulate({.ranks = 3}, [&](ProcessGroup& world) {
    const Trained trained(world.rank() == 2 ? 1 : world.rank(), 3);
    save_checkpoint_parts(run_, RankOfModel::in_pipeline(world), state_after(1), three_layers(),
                          trained.groups(), {});
  });
  for (const std::string& error : report.errors)
    EXPECT_TRUE(contains(error, "two ranks have written tensor")) << error;
  EXPECT_TRUE(fs::is_empty(run_));
}

TEST_F(CheckpointPartsTest, AMissingOrDamagedPartIsNamedAndOnlyNeededOnesAreRead) {
  const fs::path checkpoint = saved({1, 3});
  const std::string part = "model-00002-of-00003.safetensors";
  const std::string whole = read_all(checkpoint / part);
  std::string damaged = whole;
  damaged[damaged.size() - 5] ^= 4;
  for (const bool missing : {true, false}) {
    if (missing)
      fs::remove(checkpoint / part);
    else
      write_all(checkpoint / part, damaged);
    const std::string what = missing ? part + " is missing" : part + " is damaged";
    EXPECT_TRUE(contains(load_error(checkpoint), what)) << load_error(checkpoint);
    for (int stage = 0; stage < 3; ++stage) {
      const std::string error = error_of([&] { loaded(checkpoint, stage, 3); });
      EXPECT_EQ(contains(error, what), stage == 1) << stage << ": " << error;
    }
  }
  write_all(checkpoint / part, whole);
  const std::string moments = "optimizer.exp_avg_sq-00003-of-00003.safetensors";
  write_all(checkpoint / moments, whole);
  EXPECT_EQ(load_error(checkpoint), "") << "telling stories needs no optimizer";
  EXPECT_TRUE(contains(error_of([&] { loaded(checkpoint, 0, 1); }), moments + " is damaged"));
  const std::string index = "model.safetensors.index.json";
  write_all(checkpoint / index, read_all(checkpoint / index) + " ");
  EXPECT_TRUE(contains(load_error(checkpoint), index + " is damaged"));
}

}  // namespace
}  // namespace lab::checkpoint_parts_test
