// metrics.jsonl, the progress line and the loss plot.
#include "common/run/metrics/metrics.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "common/error.h"
#include "common/format.h"
#include "common/run/metrics/loss_plot.h"
#include "common/run/metrics/progress.h"
#include "tests/unit/file_size_limit.h"
#include "tests/unit/raw_files.h"
#include "tests/unit/temp_folder.h"

namespace lab::metrics_test {
namespace {

StepRecord record_of(int64_t step) {
  StepRecord record{.step = step, .loss = 8.0 / static_cast<double>(step) + 1e-17};
  record.tokens_per_second = 4812.3;
  record.learning_rate = 8e-4;
  record.seconds = 0.1 * static_cast<double>(step);
  if (step % 2 == 0) record.val_loss = 1.0 / 3.0;
  return record;
}

class MetricsTest : public testing::Test {
 protected:
  std::string text() const { return read_all(path_); }

  TempFolder folder_;
  std::filesystem::path path_ = folder_.path() / "metrics.jsonl";
};

TEST_F(MetricsTest, OneObjectALineWithTheContractedKeys) {
  MetricsFile metrics(path_, 0);
  metrics.append(record_of(1));
  metrics.append(record_of(2));
  std::ifstream in(path_);  // while the file is still open for writing: every line is there
  std::string line;
  std::getline(in, line);
  const auto first = nlohmann::json::parse(line);
  EXPECT_EQ(first["step"], 1);
  EXPECT_EQ(first["loss"], 8.0);
  EXPECT_EQ(first["tokens_per_second"], 4812.3);
  EXPECT_FALSE(first.contains("val_loss"));
  std::getline(in, line);
  EXPECT_EQ(nlohmann::json::parse(line)["val_loss"], 1.0 / 3.0);
  EXPECT_FALSE(std::getline(in, line));
}

TEST_F(MetricsTest, RecordsSurviveBitByBit) {
  for (int64_t step = 1; step < 50; ++step)
    EXPECT_EQ(parse_json_line(to_json_line(record_of(step))), record_of(step));
}

TEST_F(MetricsTest, EndsBeforeGigabytesOfNothing) {
  MetricsFile(path_, 0).append(record_of(1));
  constexpr uintmax_t kSparse = uintmax_t{1} << 40;  // bytes
  std::filesystem::resize_file(path_, kSparse);
  EXPECT_EQ(read_metrics(path_).size(), 1U);
}

TEST_F(MetricsTest, ResumingDropsLaterStepsAndATornLine) {
  {
    MetricsFile metrics(path_, 0);
    for (int64_t step = 1; step <= 5; ++step) metrics.append(record_of(step));
  }
  std::ofstream(path_, std::ios::app) << R"({"step":6,"lo)";
  MetricsFile metrics(path_, 3);
  ASSERT_EQ(metrics.history().size(), 3U);
  EXPECT_EQ(metrics.history().back(), record_of(3));
  metrics.append(record_of(4));
  const auto records = read_metrics(path_);
  ASSERT_EQ(records.size(), 4U);
  EXPECT_EQ(records[3], record_of(4));
  EXPECT_EQ(text().find("\"lo\n"), std::string::npos);
}

TEST_F(MetricsTest, ATornLineAloneIsTolerated) {
  std::ofstream(path_) << to_json_line(record_of(1)) << "\n{\"step\":2,";
  MetricsFile metrics(path_, 10);
  EXPECT_EQ(metrics.history().size(), 1U);
}

TEST_F(MetricsTest, AFullDiskIsAnErrorAndKeepsWhatWasWritten) {
  MetricsFile metrics(path_, 0);
  metrics.append(record_of(1));
  {
    const FileSizeLimit limit(std::filesystem::file_size(path_) + 10);
    EXPECT_THROW(metrics.append(record_of(2)), Error);
  }
  const auto records = read_metrics(path_);
  ASSERT_EQ(records.size(), 1U);
  EXPECT_EQ(records[0], record_of(1));
}

TEST(Progress, CountsHaveCommas) {
  EXPECT_EQ(format_count(0), "0");
  EXPECT_EQ(format_count(999), "999");
  EXPECT_EQ(format_count(1000), "1,000");
  EXPECT_EQ(format_count(1234567), "1,234,567");
}

TEST(Progress, DurationsAreShort) {
  EXPECT_EQ(format_duration(7.4), "0:07");
  EXPECT_EQ(format_duration(102), "1:42");
  EXPECT_EQ(format_duration(3 * 3600 + 5 * 60), "3:05:00");
  EXPECT_EQ(format_duration(-1), "0:00");
}

TEST(Format, BytesAndDurations) {
  EXPECT_EQ(counted(1, "batch"), "1 batch");
  EXPECT_EQ(counted(0, "batch"), "0 batches");
  EXPECT_EQ(counted(-1, "step"), "-1 steps");
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(999), "999 B");
  EXPECT_EQ(format_bytes(1500), "1.50 kB");
  EXPECT_EQ(format_bytes(999'600), "1.00 MB");
  EXPECT_EQ(format_bytes(34.21e6), "34.2 MB");
  EXPECT_EQ(format_bytes(812.4e9), "812 GB");
  EXPECT_EQ(duration_in_words(0.84), "0.8 s");
  EXPECT_EQ(duration_in_words(59.7), "1 min 0 s");
  EXPECT_EQ(duration_in_words(400), "6 min 40 s");
  EXPECT_EQ(duration_in_words(3 * 3600 + 300), "3 h 5 min");
}

TEST(Progress, LineSaysStepLossSpeedAndTimeLeft) {
  StepRecord record{.step = 120, .loss = 3.4121};
  record.tokens_per_second = 4812.4;
  EXPECT_EQ(format_progress(record, 800, 102),
            "step 120/800  loss 3.412  4,812 tokens/s  ETA 1:42");
}

TEST(Progress, GoesOnWhereNobodyReads) {
  std::FILE* full = std::fopen("/dev/full", "w");
  ASSERT_NE(full, nullptr);
  std::setvbuf(full, nullptr, _IONBF, 0);
  EXPECT_NO_THROW({
    ProgressLine progress(1, 2, full);
    progress.update(record_of(1));
    progress.note("a note");
  });
  std::fclose(full);
}

TEST_F(MetricsTest, WithoutATerminalOnlyATenthOfTheStepsIsShown) {
  std::FILE* out = std::fopen(path_.c_str(), "w");
  {
    ProgressLine progress(1, 100, out);
    for (int64_t step = 1; step <= 100; ++step) progress.update(record_of(step));
    progress.note("done");
  }
  std::fclose(out);
  const std::string shown = text();
  const auto lines = std::count(shown.begin(), shown.end(), '\n');
  EXPECT_GE(lines, 11);  // every tenth and the first; more only on a very slow machine
  EXPECT_LT(lines, 50);
  EXPECT_NE(shown.find("step 1/100"), std::string::npos);
  EXPECT_NE(shown.find("step 100/100"), std::string::npos);
  EXPECT_EQ(shown.find('\r'), std::string::npos) << "control characters in a file";
  EXPECT_EQ(shown.substr(shown.size() - 5), "done\n");
}

TEST(LossPlot, TicksAreRound) {
  EXPECT_EQ(round_ticks(8.4, 8), (std::vector<double>{0, 2, 4, 6, 8}));
  EXPECT_EQ(round_ticks(700.0, 7), (std::vector<double>{0, 100, 200, 300, 400, 500, 600, 700}));
}

size_t count(const std::string& text, const std::string& part) {
  size_t found = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

TEST(LossPlot, ShowsCurvesPointsLabelsAndAnEscapedTitle) {
  std::vector<StepRecord> records;
  for (int64_t step = 1; step <= 20; ++step) records.push_back(record_of(step));
  const std::string svg = loss_plot_svg(records, "a <run> & more");
  EXPECT_TRUE(svg.starts_with("<svg xmlns="));
  EXPECT_TRUE(svg.ends_with("</svg>\n"));
  EXPECT_NE(svg.find("a &lt;run&gt; &amp; more"), std::string::npos);
  EXPECT_EQ(svg.find("<run>"), std::string::npos);
  EXPECT_EQ(count(svg, "<polyline class=\"raw\""), 1U);
  EXPECT_EQ(count(svg, "<circle"), 10U + 1U) << "ten validation points and one in the legend";
  EXPECT_NE(svg.find(">step</text>"), std::string::npos);
  EXPECT_EQ(svg.find("nan"), std::string::npos);
}

TEST(LossPlot, SurvivesEmptySingleAndLongRuns) {
  EXPECT_EQ(loss_plot_svg({}, "").find("nan"), std::string::npos);
  const std::vector<StepRecord> one = {record_of(1)};
  EXPECT_EQ(loss_plot_svg(one, "").find("nan"), std::string::npos);
  std::vector<StepRecord> many;
  for (int64_t step = 1; step <= 100'000; ++step) many.push_back({.step = step, .loss = 2.0});
  const std::string svg = loss_plot_svg(many, "");
  EXPECT_LT(svg.size(), 100'000U);
  EXPECT_NE(svg.find(">100000</text>"), std::string::npos);
}

}  // namespace
}  // namespace lab::metrics_test
