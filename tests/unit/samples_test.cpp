// samples.jsonl through runs that stop, are killed and go on.
#include "common/run/report/samples.h"

#include <gtest/gtest.h>

#include <fstream>

#include "common/error.h"
#include "tests/unit/temp_folder.h"

namespace lab::samples_test {
namespace {

using Samples = std::vector<SampleText>;

TEST(Samples, AreReadAsTheyWereWritten) {
  const TempFolder folder;
  const Samples samples = {{0, "Once \"upon\"\n\ta time\\"}, {100, "Lily ▁ é"}, {200, ""}};
  for (const SampleText& sample : samples) append_sample(folder.path(), sample);
  EXPECT_EQ(read_samples(folder.path()), samples);
  EXPECT_EQ(read_samples(folder.path(), 100), (Samples{samples[0], samples[1]}));
}

TEST(Samples, AFolderWithoutThemHasNone) {
  const TempFolder folder;
  EXPECT_TRUE(read_samples(folder.path()).empty());
  EXPECT_THROW(append_sample(folder.path() / "absent", {1, "text"}), Error);
}

TEST(Samples, ALineThatWasCutSpoilsNoOther) {
  const TempFolder folder;
  append_sample(folder.path(), {1, "one"});
  std::ofstream(samples_path(folder.path()), std::ios::app) << R"({"step":2,"te)";
  append_sample(folder.path(), {3, "three"});
  std::ofstream(samples_path(folder.path()), std::ios::app) << "[]\n{\"step\":\"x\"}\n";
  EXPECT_EQ(read_samples(folder.path()), (Samples{{1, "one"}, {3, "three"}}));
}

TEST(Samples, BytesThatAreNoTextAreReplaced) {
  const TempFolder folder;
  append_sample(folder.path(), {1, "a\xFF\xE2\x96"});
  const Samples samples = read_samples(folder.path());
  ASSERT_EQ(samples.size(), 1U);
  EXPECT_TRUE(samples[0].text.starts_with("a\xEF\xBF\xBD"));
}

TEST(Samples, StepsThatAreTakenAgainReplaceWhatTheyWroteBefore) {
  const TempFolder folder;
  for (const int64_t step : {0, 100, 200, 300}) append_sample(folder.path(), {step, "before"});
  append_sample(folder.path(), {200, "again"});
  EXPECT_EQ(read_samples(folder.path()), (Samples{{0, "before"}, {100, "before"}, {200, "again"}}));
}

}  // namespace
}  // namespace lab::samples_test
