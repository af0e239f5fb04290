// Checkpoints: complete or absent, verified, readable as a plain Hugging Face folder.
#include "common/run/checkpoint/checkpoint.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <nlohmann/json.hpp>

#include "common/error.h"
#include "common/io/safetensors.h"
#include "common/run/checkpoint/checkpoint_folder.h"
#include "common/run/checkpoint/config_json.h"
#include "tests/unit/error_of.h"
#include "tests/unit/file_size_limit.h"
#include "tests/unit/numeric.h"
#include "tests/unit/raw_files.h"
#include "tests/unit/temp_folder.h"
#include "tests/unit/tiny_training.h"

namespace lab::checkpoint_test {
namespace {

namespace fs = std::filesystem;

// A model with an optimizer that has taken a few steps.
struct Trained {
  explicit Trained(const LlamaConfig& config = tiny_config())
      : model(config, StageSpan::whole(config), Device::kCpu, /*seed=*/3),
        adam(model.parameters().numel(), {}, lab01::adam_update) {}

  std::vector<double> train(int64_t first, int64_t last) {
    std::vector<double> losses;
    for (int64_t step = first; step <= last; ++step) losses.push_back(tiny_step(model, adam, step));
    return losses;
  }

  LlamaStage model;
  Adam adam;
};

class CheckpointTest : public testing::Test {
 protected:
  fs::path save(int64_t step, const Trained& trained) {
    TrainingState state{.step = step, .plan = default_plan()};
    state.optimizer_steps = trained.adam.steps();
    state.sampler = {.epoch = 2, .position = 34};
    state.data_fingerprint = 0xFEDCBA9876543210U;
    state.last_loss = 1.0 / 3.0;
    const std::string tokenizer("bytes\0of it", 11);  // with the zero
    return save_checkpoint(run_, state, trained.model.config(),
                           saved_tensors(trained.model, trained.adam), {tokenizer, 1, 2});
  }

  static std::string load_error(const fs::path& folder) {
    return error_of([&] { load_model(folder); });
  }

  // A folder as somebody else would have made it: no checksums, no optimizer.
  fs::path foreign(const Trained& trained) {
    const fs::path folder = save(1, trained);
    for (const char* file :
         {"checksums.json", "optimizer.safetensors", "training.json", "tokenizer.model"})
      fs::remove(folder / file);
    return folder;
  }

  // Changes config.json of a foreign folder.
  static void edit_config(const fs::path& folder, const nlohmann::json& changes) {
    auto json = nlohmann::json::parse(read_all(folder / "config.json"));
    json.merge_patch(changes);
    write_all(folder / "config.json", json.dump());
  }

  TempFolder folder_;
  fs::path run_ = folder_.path() / "run";
};

TEST_F(CheckpointTest, HoldsEverythingThatTrainingNeeds) {
  Trained trained;
  trained.train(1, 3);
  const fs::path checkpoint = save(3, trained);
  EXPECT_EQ(checkpoint, run_ / "checkpoint-000003");

  const TrainingState state = load_training_state(checkpoint);
  EXPECT_EQ(state.step, 3);
  EXPECT_EQ(state.optimizer_steps, 3);
  EXPECT_EQ(state.sampler, (SamplerState{2, 34}));
  EXPECT_EQ(state.data_fingerprint, 0xFEDCBA9876543210U);
  EXPECT_EQ(state.last_loss, 1.0 / 3.0);

  Trained resumed;
  load_for_training(checkpoint, resumed.model, resumed.adam);
  resumed.adam.set_steps(state.optimizer_steps);
  EXPECT_EQ(resumed.train(4, 8), trained.train(4, 8)) << "losses must be equal bit by bit";
  EXPECT_TRUE(test::same_bits(resumed.model.parameters(), trained.model.parameters()));
  for (size_t i = 0; i < 2; ++i)
    EXPECT_TRUE(test::same_bits(resumed.adam.state()[i].value, trained.adam.state()[i].value));
}

TEST_F(CheckpointTest, OpensForInferenceWithTheSameLogits) {
  Trained trained;
  trained.train(1, 2);
  LlamaStage model = load_model(save(2, trained));
  EXPECT_EQ(model.config(), trained.model.config());
  EXPECT_TRUE(
      test::same_bits(model.forward(pattern_batch(1)), trained.model.forward(pattern_batch(1))));
}

TEST_F(CheckpointTest, IsAFolderOfHuggingFace) {
  LlamaConfig config = tiny_config();
  config.tied_head = true;
  const fs::path checkpoint = save(1, Trained(config));
  const auto json = nlohmann::json::parse(read_all(checkpoint / "config.json"));
  EXPECT_EQ(json["architectures"], nlohmann::json({"LlamaForCausalLM"}));
  EXPECT_EQ(json["model_type"], "llama");
  EXPECT_EQ(json["hidden_size"], 16);
  EXPECT_EQ(json["num_key_value_heads"], 2);
  EXPECT_EQ(json["tie_word_embeddings"], true);
  EXPECT_EQ(json["rms_norm_eps"], 1e-6) << "not the double nearest to the float";
  EXPECT_EQ(json["bos_token_id"], 1);
  EXPECT_EQ(json["eos_token_id"], 2);
  const SafetensorsFile weights(checkpoint / "model.safetensors");
  EXPECT_EQ(weights.metadata().at("format"), "pt");
  EXPECT_TRUE(weights.has("model.layers.1.self_attn.q_proj.weight"));
  EXPECT_FALSE(weights.has("lm_head.weight")) << "the head is tied";
  const SafetensorsFile state(checkpoint / "optimizer.safetensors");
  EXPECT_EQ(state.shape("exp_avg.model.layers.1.mlp.down_proj.weight"), (Shape{16, 24}));
  EXPECT_EQ(read_config_json(checkpoint / "config.json"), config);
}

TEST_F(CheckpointTest, KnowsHowTheEmbeddingStarted) {
  LlamaConfig config = tiny_config();
  config.embedding_scale = 10;
  const fs::path checkpoint = save(1, Trained(config));
  EXPECT_EQ(read_config_json(checkpoint / "config.json"), config);
  const fs::path plain = save(2, Trained(tiny_config()));
  const auto json = nlohmann::json::parse(read_all(plain / "config.json"));
  EXPECT_FALSE(json.contains("embedding_scale"))
      << "what Hugging Face does not know is the exception";
}

TEST_F(CheckpointTest, KeepsTheLastTwoAndFindsTheNewest) {
  const Trained trained;
  for (const int64_t step : {2, 10, 9, 1000000}) save(step, trained);
  const auto left = list_checkpoints(run_);
  ASSERT_EQ(left.size(), 2U);
  EXPECT_EQ(left[0].filename(), "checkpoint-000010");
  EXPECT_EQ(left[1].filename(), "checkpoint-1000000");
  EXPECT_EQ(find_checkpoint(run_), left[1]);
  EXPECT_EQ(find_checkpoint(left[0]), left[0]);
}

TEST_F(CheckpointTest, UnfinishedOnesDoNotCountAndAreCleared) {
  const fs::path good = save(5, Trained());
  fs::create_directories(run_ / ".checkpoint-000006.unfinished-1");
  write_all(run_ / ".checkpoint-000006.unfinished-1" / "config.json", "{}");
  fs::create_directories(run_ / "checkpoint-000007");  // copied in part: no checksums.json
  fs::create_directories(run_ / "checkpoint-x");
  EXPECT_EQ(find_checkpoint(run_), good);
  remove_unfinished_checkpoints(run_);
  EXPECT_FALSE(fs::exists(run_ / ".checkpoint-000006.unfinished-1"));
  EXPECT_TRUE(fs::exists(good));
}

TEST_F(CheckpointTest, SavingAStepAgainReplacesIt) {
  Trained trained;
  save(5, trained);
  trained.train(1, 1);
  const LlamaStage model = load_model(save(5, trained));
  EXPECT_TRUE(test::same_bits(model.parameters(), trained.model.parameters()));
  EXPECT_EQ(std::distance(fs::directory_iterator(run_), {}), 1);
}

TEST_F(CheckpointTest, AFullDiskKeepsTheOlderCheckpoint) {
  const Trained trained;
  const fs::path good = save(1, trained);
  {
    const FileSizeLimit limit(3000);  // config.json fits, the weights do not
    EXPECT_NE(error_of([&] { save(2, trained); }), "");
  }
  EXPECT_EQ(std::distance(fs::directory_iterator(run_), {}), 1) << "something half written is left";
  EXPECT_EQ(load_error(good), "");
}

TEST_F(CheckpointTest, ARunFolderThatCannotExistIsAnError) {
  write_all(folder_.path() / "file", "");
  run_ = folder_.path() / "file" / "run";
  EXPECT_NE(error_of([&] { save(1, Trained()); }).find("cannot create"), std::string::npos);
}

TEST_F(CheckpointTest, DamageToAnyFileIsNoticedAndNamed) {
  const fs::path checkpoint = save(1, Trained());
  for (const char* file : {"config.json", "model.safetensors", "tokenizer.model",
                           "optimizer.safetensors", "training.json", "checksums.json"}) {
    const std::string whole = read_all(checkpoint / file);
    std::string damaged = whole;
    damaged[damaged.size() / 2] ^= 4;
    for (const std::string& bytes : {damaged, whole.substr(0, whole.size() / 2)}) {
      write_all(checkpoint / file, bytes);
      const std::string error = error_of([&] { verify_checkpoint(checkpoint); });
      EXPECT_NE(error.find(file), std::string::npos) << file << ": " << error;
      EXPECT_NE(error.find("damaged"), std::string::npos) << file << ": " << error;
    }
    write_all(checkpoint / file, whole);
    EXPECT_EQ(error_of([&] { verify_checkpoint(checkpoint); }), "");
  }
  fs::remove(checkpoint / "optimizer.safetensors");
  EXPECT_EQ(error_of([&] { verify_checkpoint(checkpoint); }),
            "checkpoint-000001/optimizer.safetensors is missing");
  EXPECT_EQ(load_error(checkpoint), "") << "telling stories needs no optimizer";
}

TEST_F(CheckpointTest, AnotherModelOrOptimizerIsRefused) {
  const fs::path checkpoint = save(1, Trained());
  LlamaConfig config = tiny_config();
  config.layers = 3;
  Trained larger(config);
  EXPECT_NE(error_of([&] {
              load_for_training(checkpoint, larger.model, larger.adam);
            }).find("another size"),
            std::string::npos);
  Trained same;
  Sgd sgd;
  EXPECT_NE(error_of([&] {
              load_for_training(checkpoint, same.model, sgd);
            }).find("optimizer.safetensors: tensor \"exp_avg"),
            std::string::npos);
}

TEST_F(CheckpointTest, AForeignFolderOpensButCannotBeTrainedFurther) {
  const Trained trained;
  const fs::path folder = foreign(trained);
  EXPECT_TRUE(test::same_bits(load_model(folder).parameters(), trained.model.parameters()));
  EXPECT_NE(error_of([&] { load_training_state(folder); }).find("has no training.json"),
            std::string::npos);
}

TEST_F(CheckpointTest, MissingExtraAndMisshapenTensorsAreNamed) {
  const Trained trained;
  const fs::path folder = foreign(trained);
  const fs::path file = folder / "model.safetensors";
  std::vector<NamedTensor> tensors;
  for (const Parameter& parameter : trained.model.named_parameters())
    tensors.push_back({parameter.name, parameter.value});

  auto changed = tensors;
  changed.erase(changed.begin() + 3);
  write_safetensors(file, changed);
  EXPECT_NE(load_error(folder).find("has no tensor \"" + tensors[3].name), std::string::npos);

  changed = tensors;
  changed.push_back({"model.layers.2.mlp.up_proj.weight", Tensor::zeros({24, 16})});
  write_safetensors(file, changed);
  EXPECT_NE(load_error(folder).find("\"model.layers.2.mlp.up_proj.weight\" does not belong"),
            std::string::npos);

  changed = tensors;
  changed[0].value = Tensor::zeros({11, 8});
  write_safetensors(file, changed);
  EXPECT_NE(load_error(folder).find("has shape [11, 8], expected [11, 16]"), std::string::npos);

  changed = tensors;  // old files store what can be computed
  changed.push_back({"model.layers.0.self_attn.rotary_emb.inv_freq", Tensor::zeros({2})});
  write_safetensors(file, changed);
  EXPECT_EQ(load_error(folder), "");
}

TEST_F(CheckpointTest, MissingFilesAreNamed) {
  EXPECT_NE(error_of([&] { find_checkpoint(run_); }).find("no such folder"), std::string::npos);
  const fs::path folder = foreign(Trained());
  fs::remove(folder / "model.safetensors");
  EXPECT_NE(load_error(folder).find("model.safetensors is missing"), std::string::npos);
  fs::remove(folder / "config.json");
  EXPECT_NE(load_error(folder).find("no config.json"), std::string::npos);
  EXPECT_NE(error_of([&] { find_checkpoint(folder); }).find("neither a checkpoint"),
            std::string::npos);
}

TEST_F(CheckpointTest, AConfigThatAsksForHugeMemoryIsRefused) {
  const fs::path folder = foreign(Trained());
  edit_config(folder, {{"vocab_size", 1 << 24}, {"intermediate_size", 1 << 18}});
  EXPECT_NE(load_error(folder).find("describes a model of"), std::string::npos);
}

// Peak memory of this process so far.
int64_t peak_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return int64_t{usage.ru_maxrss} * 1024;
}

TEST_F(CheckpointTest, AContextThatAsksForHugeMemoryIsRefused) {
  const fs::path folder = foreign(Trained());
  write_safetensors(folder / "model.safetensors", {});
  // Few weights, but a table of angles of 1.7 GB.
  edit_config(folder, {{"max_position_embeddings", 1 << 20},
                       {"hidden_size", 400},
                       {"head_dim", 400},
                       {"num_attention_heads", 1},
                       {"num_key_value_heads", 1},
                       {"num_hidden_layers", 1},
                       {"intermediate_size", 1}});
  const int64_t before = peak_bytes();
  const std::string error = load_error(folder);
  EXPECT_NE(error.find("describes a context of 1048576 positions with 400 angles"),
            std::string::npos)
      << error;
  EXPECT_LT(peak_bytes() - before, int64_t{256} << 20);
}

TEST_F(CheckpointTest, WhatTheModelCannotDoIsRefusedByName) {
  const fs::path folder = foreign(Trained());
  const std::string original = read_all(folder / "config.json");
  const auto error_with = [&](const nlohmann::json& changes) {
    write_all(folder / "config.json", original);
    edit_config(folder, changes);
    return load_error(folder);
  };
  const std::vector<std::pair<nlohmann::json, const char*>> cases = {
      {{{"model_type", "mistral"}}, "\"model_type\" is \"mistral\""},
      {{{"hidden_act", "gelu"}}, "\"hidden_act\""},
      {{{"attention_bias", true}}, "\"attention_bias\""},
      {{{"mlp_bias", true}}, "\"mlp_bias\""},
      {{{"rope_scaling", {{"rope_type", "llama3"}}}}, "\"rope_type\" is \"llama3\""},
      {{{"rope_scaling", {{"type", "linear"}, {"factor", 2.0}}}}, "\"type\" is \"linear\""},
      {{{"rope_parameters", {{"rope_type", "yarn"}}}}, "rope_parameters: \"rope_type\""},
      {{{"quantization_config", {{"bits", 4}}}}, "quantized"},
      {{{"head_dim", 8}}, "\"head_dim\" is 8"},
      {{{"hidden_size", "16"}}, "\"hidden_size\" is not a whole number"},
      {{{"hidden_size", 16.5}}, "\"hidden_size\" is not a whole number"},
      {{{"hidden_size", nullptr}}, "\"hidden_size\" is missing"},
      {{{"hidden_size", -16}}, "dim is -16"},
      {{{"num_hidden_layers", 1e3}}, "\"num_hidden_layers\""},
      {{{"num_attention_heads", 5}}, "5 heads do not divide"},
      {{{"num_attention_heads", 0}}, "heads is 0"},
      {{{"vocab_size", 9223372036854775807}}, "vocab_size is"},
      {{{"vocab_size", 18446744073709551615U}}, "\"vocab_size\" is not a whole number"},
      {{{"rope_theta", -1}}, "rope_theta"},
      {{{"rms_norm_eps", "small"}}, "\"rms_norm_eps\" is not a number"},
      {{{"tie_word_embeddings", "no"}}, "\"tie_word_embeddings\""},
  };
  for (const auto& [changes, message] : cases) {
    const std::string error = error_with(changes);
    EXPECT_NE(error.find(message), std::string::npos) << changes << " gives: " << error;
    EXPECT_NE(error.find("config.json"), std::string::npos) << error;
  }
}

TEST_F(CheckpointTest, RopeThetaIsReadFromBothPlaces) {
  const fs::path folder = foreign(Trained());
  edit_config(folder, {{"rope_theta", nullptr},
                       {"rope_parameters", {{"rope_type", "default"}, {"rope_theta", 500.0}}}});
  EXPECT_EQ(read_config_json(folder / "config.json").rope_theta, 500.0F);
  edit_config(folder, {{"rope_parameters", nullptr}, {"rope_theta", 600.0}});
  EXPECT_EQ(read_config_json(folder / "config.json").rope_theta, 600.0F);
}

TEST_F(CheckpointTest, BrokenJsonIsAnError) {
  const fs::path folder = foreign(Trained());
  const std::string whole = read_all(folder / "config.json");
  for (size_t length = 0; length + 2 < whole.size(); length += 3) {
    write_all(folder / "config.json", whole.substr(0, length));
    EXPECT_NE(error_of([&] { read_config_json(folder / "config.json"); }), "") << length;
  }
  write_all(folder / "config.json", std::string(100000, '['));
  EXPECT_NE(error_of([&] { read_config_json(folder / "config.json"); }).find("nested"),
            std::string::npos);
}

}  // namespace
}  // namespace lab::checkpoint_test
