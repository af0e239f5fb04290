// Checkpoints in parts that somebody else has made: opened if they are right, else refused with the
// name of the file.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "common/io/safetensors.h"
#include "common/run/checkpoint/checkpoint.h"
#include "tests/unit/checkpoint_parts_run.h"
#include "tests/unit/error_of.h"
#include "tests/unit/numeric.h"
#include "tests/unit/raw_files.h"

namespace lab::foreign_parts_test {
namespace {

using namespace checkpoint_parts;

// A sharded model as somebody else has made it.
class ForeignPartsTest : public CheckpointPartsTest {
 protected:
  void SetUp() override {
    checkpoint_ = saved({1, 3});
    for (const std::string& file : files_in(checkpoint_))
      if (file.starts_with("optimizer") || file == "checksums.json" || file == "training.json")
        fs::remove(checkpoint_ / file);
  }

  nlohmann::json index() const { return nlohmann::json::parse(read_all(index_path())); }
  void set_index(const nlohmann::json& json) const { write_all(index_path(), json.dump()); }
  fs::path index_path() const { return checkpoint_ / "model.safetensors.index.json"; }

  /// Loads with a changed index or part, and puts the index back.
  void expect_error(const std::string& reason) const {
    const std::string error = load_error(checkpoint_);
    EXPECT_TRUE(contains(error, reason)) << error;
    EXPECT_FALSE(contains(error, "\n")) << error;
  }

  fs::path checkpoint_;
  const std::string head_ = "lm_head.weight";
  const std::string first_ = "model-00001-of-00003.safetensors";
  const std::string last_ = "model-00003-of-00003.safetensors";
};

TEST_F(ForeignPartsTest, Opens) {
  EXPECT_TRUE(
      test::same_bits(load_model(checkpoint_).parameters(), Trained(0, 1).model.parameters()));
}

TEST_F(ForeignPartsTest, AnIndexThatIsWrongIsRefused) {
  const nlohmann::json good = index();
  nlohmann::json wrong = good;
  wrong["weight_map"][head_] = first_;
  set_index(wrong);
  expect_error(first_ + ": has no tensor \"lm_head.weight\", though");
  wrong = good;
  wrong["weight_map"].erase(head_);
  set_index(wrong);
  expect_error("lm_head.weight");
  wrong = good;
  wrong["weight_map"]["model.layers.7.mlp.up_proj.weight"] = last_;
  set_index(wrong);
  expect_error(last_ + ": has no tensor \"model.layers.7");
  wrong = good;
  wrong = good;
  wrong["weight_map"]["another"] = "model-00004-of-00004.safetensors";
  set_index(wrong);
  expect_error("model-00004-of-00004.safetensors is missing");
  for (const char* file :
       {"../model.safetensors", "/etc/x.safetensors", "", "x.bin", ".safetensors"}) {
    wrong["weight_map"][head_] = file;
    set_index(wrong);
    expect_error("must be a .safetensors file in the same folder");
  }
  wrong["weight_map"] = {1, 2};
  set_index(wrong);
  expect_error("weight_map");
  set_index(nlohmann::json::object());
  expect_error("weight_map");
  write_all(index_path(), "{\"weight_map\": {");
  expect_error("not valid JSON");
}

TEST_F(ForeignPartsTest, ATensorInTwoPartsIsRefused) {
  const SafetensorsFile part(checkpoint_ / first_);
  std::vector<NamedTensor> tensors;
  for (const std::string& name : part.names()) tensors.push_back({name, part.read(name)});
  tensors.push_back({head_, Tensor::zeros({11, 16})});
  write_safetensors(checkpoint_ / first_, tensors);
  expect_error(first_ + ": holds tensor \"lm_head.weight\" a second time");
}

TEST_F(ForeignPartsTest, ATruncatedPartIsRefused) {
  const std::string whole = read_all(checkpoint_ / last_);
  for (const size_t length : {size_t{0}, size_t{7}, size_t{100}, whole.size() - 1}) {
    write_all(checkpoint_ / last_, whole.substr(0, length));
    expect_error(last_);
  }
}

TEST_F(ForeignPartsTest, ASmallerModelOpensOnlyWithItsOwnConfig) {
  auto config = nlohmann::json::parse(read_all(checkpoint_ / "config.json"));
  config["num_hidden_layers"] = 2;
  write_all(checkpoint_ / "config.json", config.dump());
  expect_error("does not belong to a model of this kind and size");
  config["num_hidden_layers"] = 4096;
  config["intermediate_size"] = 1 << 18;
  write_all(checkpoint_ / "config.json", config.dump());
  expect_error("describes a model of");
}

}  // namespace
}  // namespace lab::foreign_parts_test
