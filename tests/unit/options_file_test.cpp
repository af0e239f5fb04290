// --config: a file of options.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/unit/error_of.h"
#include "tests/unit/parsed_plan.h"
#include "tests/unit/temp_folder.h"

namespace lab::options_file_test {
namespace {

std::string written(const TempFolder& folder, const std::string& text) {
  std::ofstream(folder.path() / "config.ini") << text;
  return (folder.path() / "config.ini").string();
}

TEST(OptionsFile, TakesBackWhatARunWasStartedWith) {
  const TempFolder folder;
  const RunPlan first =
      parse({"--steps", "40", "--decay", "constant", "--optimizer", "adamw", "--lr", "0.002",
             "--tied", "--dim", "96", "--prompt", "One day, \"he\" said"});
  const std::string file = written(folder, first.config_file);
  const RunPlan again = parse({"--config", file.c_str()});
  EXPECT_EQ(plan_to_json(again), plan_to_json(first));
  EXPECT_EQ(again.config_file, first.config_file);
}

TEST(OptionsFile, OptionsGivenGoBefore) {
  const TempFolder folder;
  const std::string file = written(folder, "steps=40\ndim=96\n");
  const RunPlan options = parse({"--config", file.c_str(), "--steps", "50"});
  EXPECT_EQ(options.steps, 50);
  EXPECT_EQ(options.warmup, 50 / 16);
  EXPECT_EQ(options.model.dim, 96);
}

TEST(OptionsFile, RefusesWhatIsNoOption) {
  const TempFolder folder;
  const std::string unknown = written(folder, "stepz=40\n");
  EXPECT_TRUE(contains(error_of({"--config", unknown.c_str()}), unknown));
  const std::string wrong = written(folder, "steps=many\n");
  EXPECT_TRUE(contains(error_of({"--config", wrong.c_str()}), wrong));
  EXPECT_TRUE(contains(error_of({"--config", "/nowhere/config.ini"}), "/nowhere/config.ini"));
  EXPECT_FALSE(contains(error_of({"--stepz", "40"}), "command line"));
}

TEST(OptionsFile, RefusesWhatIsNoFileOfOptions) {
  const TempFolder folder;
  const auto error_with = [](const std::string& file) {
    return error_of({"--config", file.c_str()});
  };
  const std::string pipe = (folder.path() / "pipe").string();
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  for (const std::string& file : {pipe, std::string("/dev/zero"), folder.path().string()})
    EXPECT_TRUE(contains(error_with(file), file + ": not a regular file")) << error_with(file);
  const std::string sections = error_with(written(folder, "steps=4\n  [a.b]\ndim=96\n"));
  EXPECT_TRUE(contains(sections, "line 2 begins a section")) << sections;
  const std::string large = error_with(written(folder, std::string((1 << 20) + 1, '#')));
  EXPECT_TRUE(contains(large, "larger than 1 MiB")) << large;
}

TEST(OptionsFile, DoesNotSayWhereTheRunIs) {
  const TempFolder folder;
  const std::string out = (folder.path() / "run").string();
  EXPECT_EQ(parse({"--out", out.c_str()}).config_file.find(out), std::string::npos);
}

}  // namespace
}  // namespace lab::options_file_test
