// training.json: what no run can have is refused, before anything is computed with it.
#include "common/run/checkpoint/training_state.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/unit/error_of.h"
#include "tests/unit/raw_files.h"
#include "tests/unit/temp_folder.h"

namespace lab::training_state_test {
namespace {

using Json = nlohmann::json;

class TrainingStateTest : public testing::Test {
 protected:
  void SetUp() override {
    save_training_state(folder_.path(), {.step = 5,
                                         .optimizer_steps = 5,
                                         .sampler = {.epoch = 1, .position = 7},
                                         .plan = default_plan()});
    good_ = Json::parse(read_all(file_));
  }

  // The error of the file with another value at `place`, "/options/ranks".
  std::string error_with(const std::string& place, const Json& value) {
    Json json = good_;
    json[Json::json_pointer(place)] = value;
    return error_of_text(json.dump());
  }

  std::string error_of_text(const std::string& text) {
    write_all(file_, text);
    return error_of([&] { load_training_state(folder_.path()); });
  }

  TempFolder folder_;
  std::filesystem::path file_ = folder_.path() / "training.json";
  Json good_;
};

TEST_F(TrainingStateTest, RefusesWhatNoRunHas) {
  EXPECT_EQ(error_of_text(good_.dump()), "");
  constexpr int64_t kHuge = INT64_MAX;
  const std::vector<std::pair<const char*, std::vector<Json>>> wrong = {
      {"/step", {-1, kHuge, UINT64_MAX, 1e300, 5.5, true, "5", nullptr}},
      {"/optimizer_steps", {-1, kHuge}},
      {"/sampler/epoch", {-1, kHuge, UINT64_MAX}},
      {"/sampler/position", {-1, kHuge, UINT64_MAX, 1e19}},
      {"/options/ranks", {0, -1, 65, kHuge, UINT64_MAX, 1e300}},
      {"/options/batch", {0, -3, kHuge}},
      {"/options/accumulate", {0, kHuge}},
      {"/options/steps", {0, kHuge}},
      {"/options/threads", {-1, int64_t{1} << 32, kHuge}},
      {"/options/dim", {0, kHuge}},
      {"/options/context", {0, int64_t{1} << 40}},
      {"/options/device", {"", "tpu", 3}},
      {"/options/precision", {"int8"}},
      {"/options/comm", {"pigeon"}},
  };
  for (const auto& [place, values] : wrong)
    for (const Json& value : values) {
      const std::string error = error_with(place, value);
      EXPECT_TRUE(error.starts_with(file_.string() + ": "))
          << place << " " << value << ": " << error;
      EXPECT_EQ(error.find('\n'), std::string::npos) << error;
    }
  EXPECT_TRUE(
      contains(error_with("/options/ranks", 65), "--ranks 65: it must lie between 1 and 64"));
  EXPECT_TRUE(contains(error_with("/sampler/position", -1), "\"position\" is -1"));
}

TEST_F(TrainingStateTest, RefusesWhatLacksSomething) {
  for (const auto& [key, value] : good_.items()) {
    Json json = good_;
    json.erase(key);
    EXPECT_NE(error_of_text(json.dump()), "") << key;
  }
  EXPECT_TRUE(contains(error_with("/sampler", 3), "\"epoch\" is missing"));
  EXPECT_NE(error_with("/options", Json::array()), "");
  EXPECT_TRUE(contains(error_with("/format", 1), "another version of this program"));
}

}  // namespace
}  // namespace lab::training_state_test
