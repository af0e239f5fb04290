// Models in other forms: llama2.c's files agree with a second implementation of that format, and
// every way round gives back the same bits.
#include "common/tools/convert/convert_model.h"

#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>

#include "common/data/tokenizer.h"
#include "common/io/safetensors.h"
#include "common/optim/optimizer.h"
#include "common/run/checkpoint/checkpoint.h"
#include "common/run/checkpoint/checkpoint_tensors.h"
#include "common/tools/convert/llama2c.h"
#include "tests/unit/error_of.h"
#include "tests/unit/file_size_limit.h"
#include "tests/unit/llama2c_model.h"
#include "tests/unit/raw_files.h"
#include "tests/unit/temp_folder.h"
#include "tests/unit/tiny_training.h"

namespace lab::convert_model_test {
namespace {

namespace fs = std::filesystem;

/// Heads of width 6, so that pairs and halves differ; norms and angles as llama2.c has them.
LlamaConfig config_of(int64_t kv_heads, bool tied) {
  LlamaConfig config = tiny_config();
  config.dim = 24;
  config.kv_heads = kv_heads;
  config.tied_head = tied;
  config.norm_eps = kLlama2cNormEps;
  config.init_std = 0.3F;
  return config;
}

LlamaStage model_of(const LlamaConfig& config) {
  LlamaStage model(config, StageSpan::whole(config), Device::kCpu, /*seed=*/5);
  for (const Parameter& parameter : model.named_parameters())
    if (parameter.value.dims() == 1)  // norms that are not all 1 tell which is which
      for (int64_t i = 0; i < parameter.value.numel(); ++i)
        parameter.value.data()[i] = 1.0F + 0.01F * static_cast<float>(i % 7) +
                                    0.05F * static_cast<float>(parameter.name.size() % 3);
  return model;
}

bool same_bits(const LlamaStage& a, const LlamaStage& b) {
  return a.parameters().shape() == b.parameters().shape() &&
         std::memcmp(a.parameters().data(), b.parameters().data(), a.parameters().bytes()) == 0;
}

/// Version 1 of a file of version 0: the same pieces in another order.
std::string version_1_of(const std::string& file, const LlamaConfig& config) {
  size_t next = 28;
  const auto take = [&](int64_t count) {
    const std::string piece = file.substr(next, static_cast<size_t>(count) * 4);
    next += piece.size();
    return piece;
  };
  const int64_t per_layer = config.layers * config.dim;
  const int64_t kv_dim = config.kv_heads * config.head_dim();
  const std::string embedding = take(config.vocab_size * config.dim);
  const std::string first_norms = take(per_layer);
  const std::string attention = take(per_layer * (2 * config.dim + 2 * kv_dim));
  const std::string second_norms = take(per_layer);
  const std::string mlp = take(3 * per_layer * config.hidden_dim);
  const std::string last_norm = take(config.dim);
  take(config.context * config.head_dim());
  std::string header = "24ka" + std::string({1, 0, 0, 0}) + file.substr(0, 28);
  const auto vocabulary = static_cast<int32_t>(config.vocab_size);
  std::memcpy(header.data() + 8 + 20, &vocabulary, 4);
  header += static_cast<char>(config.tied_head ? 1 : 0);
  header.resize(256, '\0');
  return header + first_norms + second_norms + last_norm + embedding + attention + mlp +
         file.substr(next);
}

class ConvertTest : public testing::Test {
 protected:
  OpenModel open(const fs::path& from, std::optional<float> norm_eps = {}) const {
    return open_model({.from = from, .to = {}, .tokenizer = {}, .norm_eps = norm_eps});
  }

  std::string open_error(const fs::path& from) const {
    return error_of([&] { open(from); });
  }

  TempFolder folder_;
  fs::path bin_ = folder_.path() / "model.bin";
  fs::path hf_ = folder_.path() / "model";
};

TEST_F(ConvertTest, Llama2cComputesTheSameLogits) {
  for (const int64_t kv_heads : {4, 2, 1}) {
    for (const bool tied : {false, true}) {
      LlamaStage model = model_of(config_of(kv_heads, tied));
      write_llama2c(bin_, model);
      const Llama2cModel theirs(read_all(bin_));
      EXPECT_TRUE(theirs.used_all());
      TokenBatch batch{.batch = 1, .length = 10, .tokens = {1, 5, 7, 3, 10, 2, 2, 9, 0, 4}};
      const std::vector<double> expected = theirs.logits(batch.tokens, kLlama2cNormEps);
      const Tensor logits = model.forward(batch);
      ASSERT_EQ(static_cast<size_t>(logits.numel()), expected.size());
      double largest = 0.0;
      for (const double value : expected) largest = std::max(largest, std::abs(value));
      EXPECT_GT(largest, 0.5) << "the model should say something";
      for (size_t i = 0; i < expected.size(); ++i)
        EXPECT_NEAR(logits.data()[i], expected[i], 1e-5 * largest)
            << "number " << i << ", " << kv_heads << " heads for keys, tied: " << tied;
    }
  }
}

TEST_F(ConvertTest, EveryWayRoundGivesTheSameBits) {
  for (const int64_t kv_heads : {4, 2, 1}) {
    for (const bool tied : {false, true}) {
      const LlamaConfig config = config_of(kv_heads, tied);
      const LlamaStage model = model_of(config);
      write_llama2c(bin_, model);
      const OpenModel from_bin = open(bin_);
      LlamaConfig without_init = config;  // the file does not say how the model began
      without_init.init_std = LlamaConfig{}.init_std;
      EXPECT_EQ(from_bin.model.config(), without_init);
      EXPECT_TRUE(same_bits(from_bin.model, model));

      write_model_folder(hf_, from_bin);
      const OpenModel from_folder = open(hf_);
      EXPECT_TRUE(same_bits(from_folder.model, model));
      const std::string bytes = read_all(bin_);
      fs::remove(bin_);
      write_llama2c(bin_, from_folder.model);
      EXPECT_EQ(read_all(bin_), bytes);

      write_all(bin_, version_1_of(bytes, config));
      EXPECT_TRUE(same_bits(open(bin_).model, model));
      EXPECT_EQ(open(bin_).model.config(), without_init);
      fs::remove(bin_);
      fs::remove_all(hf_);
    }
  }
}

TEST_F(ConvertTest, RowsChangePlacesWithinTheirHead) {
  // Heads of width 6: llama2.c has the pairs (0, 3), (1, 4), (2, 5) side by side.
  std::vector<int64_t> rows;
  for (int64_t row = 0; row < 6; ++row) rows.push_back(rotate_half_row(row, 6));
  EXPECT_EQ(rows, (std::vector<int64_t>{0, 3, 1, 4, 2, 5}));
}

TEST_F(ConvertTest, ACheckpointBecomesAFolderOfHuggingFace) {
  const LlamaConfig config = config_of(2, true);
  const LlamaStage model = model_of(config);
  const std::string tokenizer("bytes\0of it", 11);
  const fs::path run = folder_.path() / "run";
  save_checkpoint(run, {.step = 3, .plan = default_plan()}, config, saved_tensors(model, Sgd()),
                  {tokenizer, 7, 8});
  const OpenModel opened = open(run);
  write_model_folder(hf_ / "", opened);  // as the shell completes it
  std::vector<std::string> files;
  for (const auto& entry : fs::directory_iterator(hf_))
    files.push_back(entry.path().filename().string());
  std::sort(files.begin(), files.end());
  EXPECT_EQ(files,
            (std::vector<std::string>{"config.json", "model.safetensors", "tokenizer.model"}));
  EXPECT_EQ(read_all(hf_ / "tokenizer.model"), tokenizer);
  EXPECT_EQ(SafetensorsFile(hf_ / "model.safetensors").metadata().at("format"), "pt");
  const auto json = nlohmann::json::parse(read_all(hf_ / "config.json"));
  EXPECT_EQ(json["bos_token_id"], 7);
  EXPECT_EQ(json["eos_token_id"], 8);
  EXPECT_EQ(open(hf_).model.config(), config);
  EXPECT_TRUE(same_bits(open(hf_).model, model));
}

TEST_F(ConvertTest, AForeignFolderInPartsOpens) {
  const LlamaStage model = model_of(config_of(2, false));
  write_model_folder(hf_, {.model = model_of(config_of(2, false)), .tokenizer = {}});
  const SafetensorsFile all(hf_ / "model.safetensors");
  fs::remove(hf_ / "model.safetensors");
  std::map<std::string, std::string> part_of;
  std::vector<NamedTensor> parts[2];
  for (const std::string& name : all.names()) {
    const int part = name < "model.layers.1" ? 0 : 1;  // not at a border of layers
    parts[part].push_back({name, all.read(name)});
    part_of[name] = part_name("model", part, 2);
  }
  for (int part = 0; part < 2; ++part)
    write_safetensors(hf_ / part_name("model", part, 2), parts[part]);
  write_tensor_index(hf_, "model", part_of, 0);
  auto config = nlohmann::json::parse(read_all(hf_ / "config.json"));
  config["eos_token_id"] = {5, 6};
  config["bos_token_id"] = nullptr;
  write_all(hf_ / "config.json", config.dump());
  const OpenModel opened = open(hf_);
  EXPECT_TRUE(same_bits(opened.model, model));
  EXPECT_EQ(opened.bos, 1);
  EXPECT_EQ(opened.eos, 5);
  EXPECT_TRUE(opened.tokenizer.empty());
}

TEST_F(ConvertTest, EpsilonAndTokenizerMayBeGiven) {
  const fs::path pieces = default_plan().tokenizer;
  LlamaConfig config = config_of(4, false);
  write_llama2c(bin_, model_of(config));
  EXPECT_EQ(open(bin_, 1e-6F).model.config().norm_eps, 1e-6F);
  EXPECT_TRUE(contains(
      error_of([&] { open_model({.from = bin_, .to = {}, .tokenizer = pieces, .norm_eps = {}}); }),
      "this tokenizer has 4096 tokens, the model knows 11"));
  config.vocab_size = 4096;
  fs::remove(bin_);
  write_llama2c(bin_, model_of(config));
  const OpenModel opened =
      open_model({.from = bin_, .to = {}, .tokenizer = pieces, .norm_eps = {}});
  EXPECT_EQ(opened.tokenizer, read_all(pieces));
  EXPECT_EQ(opened.bos, Tokenizer(pieces).bos());
  write_model_folder(hf_, opened);
  EXPECT_TRUE(contains(error_of([&] { open(hf_, 1e-6F); }), "may be given for a .bin only"));
}

TEST_F(ConvertTest, WhatExistsIsNeverOverwritten) {
  const OpenModel model{.model = model_of(config_of(4, false)), .tokenizer = {}};
  write_all(hf_, "mine");
  EXPECT_TRUE(contains(error_of([&] { write_model_folder(hf_, model); }), "exists already"));
  EXPECT_EQ(read_all(hf_), "mine");
  fs::remove(hf_);
  fs::create_directory(hf_);  // an empty folder is something, too
  EXPECT_TRUE(contains(error_of([&] { write_model_folder(hf_, model); }), "exists already"));
  fs::remove(hf_);
  fs::create_symlink("nowhere", hf_);
  EXPECT_TRUE(contains(error_of([&] { check_target_is_free(hf_); }), "exists already"));
}

TEST_F(ConvertTest, AFullDiskLeavesNothing) {
  const OpenModel model{.model = model_of(config_of(4, false)), .tokenizer = {}};
  {
    const FileSizeLimit limit(3000);
    EXPECT_NE(error_of([&] { write_model_folder(hf_, model); }), "");
    EXPECT_NE(error_of([&] { write_llama2c(bin_, model.model); }), "");
  }
  EXPECT_TRUE(fs::is_empty(folder_.path()));
}

TEST_F(ConvertTest, OtherRotaryAnglesCannotBeWritten) {
  LlamaConfig config = config_of(4, false);
  config.rope_theta = 500'000.0F;
  EXPECT_TRUE(contains(error_of([&] { write_llama2c(bin_, model_of(config)); }), "theta"));
  EXPECT_FALSE(fs::exists(bin_));
}

TEST_F(ConvertTest, WeightsThatAreNotNumbersAreRefused) {
  const LlamaStage model = model_of(config_of(4, false));
  model.parameters().data()[7] = std::numeric_limits<float>::quiet_NaN();
  write_llama2c(bin_, model);
  EXPECT_TRUE(contains(open_error(bin_), "has weights that are not numbers"));
}

TEST_F(ConvertTest, MissingSourcesAreNamed) {
  EXPECT_TRUE(contains(open_error(bin_), "no such file or folder"));
  fs::create_directory(hf_);
  EXPECT_TRUE(contains(open_error(hf_), "neither a checkpoint"));
}

/// Every file here is wrong in one place.
class CorruptBinTest : public ConvertTest {
 protected:
  void SetUp() override {
    write_llama2c(bin_, model_of(config_));
    good_ = read_all(bin_);
  }

  /// With size number `i` of the header changed.
  std::string error_with(int i, int32_t value, bool version_1 = false) {
    std::string bytes = version_1 ? version_1_of(good_, config_) : good_;
    std::memcpy(bytes.data() + (version_1 ? 8 : 0) + 4 * i, &value, 4);
    return error_of_bytes(bytes);
  }

  std::string error_of_bytes(const std::string& bytes) {
    write_all(bin_, bytes);
    const std::string error = open_error(bin_);
    EXPECT_TRUE(error.empty() || error.starts_with(bin_.string())) << error;
    return error;
  }

  LlamaConfig config_ = config_of(2, false);
  std::string good_;
};

TEST_F(CorruptBinTest, ImpossibleSizesAreRefusedBeforeMemoryIsTaken) {
  for (const bool version_1 : {false, true}) {
    for (int i = 0; i < 7; ++i)
      for (const int32_t value : {0, -5, INT32_MAX, INT32_MIN})
        EXPECT_NE(error_with(i, value, version_1), "") << "size " << i << ": " << value;
    EXPECT_TRUE(contains(error_with(0, 1 << 20, version_1), "dim is 1048576"));
    EXPECT_TRUE(contains(error_with(3, 5, version_1), "heads do not divide"));
    EXPECT_TRUE(contains(error_with(2, 1 << 12, version_1), "cut short")) << "layers";
  }
  // Version 1 has no table of angles: the size of the file does not tell how long the context is.
  EXPECT_EQ(error_with(6, 1 << 20, /*version_1=*/true), "");
  LlamaConfig wide = config_;
  wide.dim = 96;
  wide.heads = wide.kv_heads = 1;
  write_llama2c(bin_, model_of(wide));
  good_ = read_all(bin_);
  config_ = wide;
  EXPECT_TRUE(contains(error_with(6, 1 << 20, /*version_1=*/true), "far too long for it"));
  // The largest of each size, in a file of 28 bytes.
  const int32_t largest[7] = {1 << 16, 1 << 18, 1 << 12, 1 << 12, 1 << 12, 1 << 24, 1 << 20};
  const std::string error =
      error_of_bytes({reinterpret_cast<const char*>(largest), sizeof largest});
  EXPECT_TRUE(contains(error, "cut short or not a model of llama2.c: it should have")) << error;
}

TEST_F(CorruptBinTest, EveryLengthButTheRightOneIsRefused) {
  for (const std::string& whole : {good_, version_1_of(good_, config_)}) {
    EXPECT_EQ(error_of_bytes(whole), "");
    for (const size_t length : {size_t{0}, size_t{3}, size_t{4}, size_t{27}, size_t{28}, size_t{35},
                                size_t{255}, size_t{256}, whole.size() - 4, whole.size() - 1})
      EXPECT_TRUE(contains(error_of_bytes(whole.substr(0, length)), "cut short")) << length;
    EXPECT_TRUE(contains(error_of_bytes(whole + "x"), "has 1 bytes after its last weight"));
    EXPECT_NE(error_of_bytes(whole + whole), "");
  }
}

TEST_F(CorruptBinTest, OtherFormatsAreRefused) {
  std::string bytes = version_1_of(good_, config_);
  bytes[4] = 2;
  EXPECT_TRUE(contains(error_of_bytes(bytes),
                       "version 2 of llama2.c's format cannot be read, its "
                       "weights are quantized"));
  bytes[4] = 9;
  EXPECT_TRUE(contains(error_of_bytes(bytes), "version 9"));
  bytes[4] = 1;
  bytes[36] = 3;
  EXPECT_TRUE(contains(error_of_bytes(bytes), "tied is 3, not 0 or 1"));
  bytes[36] = 1;  // the weights of the head are left over
  EXPECT_TRUE(contains(error_of_bytes(bytes), "after its last weight"));
  EXPECT_TRUE(contains(error_of_bytes(std::string(10'000, 'x')), "not a model of llama2.c"));
  EXPECT_TRUE(contains(error_of_bytes("{\"model_type\": \"llama\", \"hidden_size\": 288}"),
                       "not a model of llama2.c"));
}

}  // namespace
}  // namespace lab::convert_model_test
