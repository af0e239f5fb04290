// Schedules: their text, and reading it.
#include "common/pipeline/schedule.h"

#include <gtest/gtest.h>

#include "common/io/files.h"
#include "tests/unit/error_of.h"
#include "tests/unit/pipeline_plans.h"
#include "tests/unit/temp_folder.h"

namespace lab::schedule_test {
namespace {

constexpr const char* kText =
    "stages 2 microbatches 2\n"
    "0: F0 >F0 F1 >F1* <B0 B0 <B1* B1\n"
    "1: <F0 F0 B0 >B0 <F1 F1 B1 >B1\n";

std::string parse_error(const std::string& text) {
  return error_of([&] { schedule_from_text(text, "plan.txt"); });
}

TEST(Schedule, NamesEveryKindOfAction) {
  EXPECT_EQ(to_string({ActionKind::kForward, 3}), "F3");
  EXPECT_EQ(to_string({ActionKind::kBackward, 0}), "B0");
  EXPECT_EQ(to_string({ActionKind::kRecvActivation, 12}), "<F12");
  EXPECT_EQ(to_string({ActionKind::kSendActivation, 1, true}), ">F1*");
  EXPECT_EQ(to_string({ActionKind::kRecvGradient, 1, true}), "<B1*");
  EXPECT_EQ(to_string({ActionKind::kSendGradient, 1}), ">B1");
}

TEST(Schedule, ReadsWhatTheHeaderShows) {
  const Schedule schedule = schedule_from_text(kText, "plan.txt");
  EXPECT_EQ(schedule.microbatches, 2);
  ASSERT_EQ(schedule.stage_count(), 2);
  const ActionList first = {{ActionKind::kForward, 0},
                            {ActionKind::kSendActivation, 0},
                            {ActionKind::kForward, 1},
                            {ActionKind::kSendActivation, 1, true},
                            {ActionKind::kRecvGradient, 0},
                            {ActionKind::kBackward, 0},
                            {ActionKind::kRecvGradient, 1, true},
                            {ActionKind::kBackward, 1}};
  EXPECT_EQ(schedule.stages[0], first);
  EXPECT_TRUE(schedule.has_messages());
  EXPECT_EQ(to_text(schedule), kText);
}

TEST(Schedule, TextGoesThereAndBack) {
  for (int stages = 1; stages <= 4; ++stages)
    for (int microbatches = 1; microbatches <= 12; ++microbatches) {
      const Schedule plan = one_f_one_b_plan(stages, microbatches);
      const Schedule program = with_messages_beside(plan, microbatches % 2 == 0);
      EXPECT_EQ(schedule_from_text(to_text(plan), "x"), plan);
      EXPECT_EQ(schedule_from_text(to_text(program), "x"), program);
      EXPECT_FALSE(plan.has_messages());
      EXPECT_EQ(program.has_messages(), stages > 1);
    }
  EXPECT_EQ(schedule_from_text(to_text({}), "x"), Schedule{});
}

TEST(Schedule, CommentsBlanksAndTheOrderOfLinesDoNotMatter) {
  const Schedule schedule = schedule_from_text(
      "# a schedule\r\n\n  stages 2   microbatches 1 # small\r\n\t1 : F0\tB0 # the last\n0:F0 B0",
      "x");
  EXPECT_EQ(schedule, gpipe_plan(2, 1));
}

TEST(Schedule, AStageWithoutActionsIsRead) {
  EXPECT_EQ(schedule_from_text("stages 1 microbatches 1\n0:\n", "x").stages[0].size(), 0U);
}

TEST(Schedule, ErrorsNameFileAndLine) {
  const std::string header = "stages 2 microbatches 2\n";
  EXPECT_EQ(parse_error(""), "plan.txt: no line \"stages P microbatches M\"");
  EXPECT_EQ(parse_error("# nothing\n"), "plan.txt: no line \"stages P microbatches M\"");
  for (const char* line : {"0: F0 B0", "stages 2", "stages 2 microbatches",
                           "microbatches 2 stages 2", "stages 2 microbatches 2 more"})
    EXPECT_EQ(parse_error(fmt::format("\n{}", line)),
              "plan.txt:2: expected \"stages P microbatches M\" first")
        << line;
  for (const char* number : {"-1", "x", "2.5", "99999999999", "65537"})
    EXPECT_EQ(
        parse_error(fmt::format("stages {} microbatches 1", number)),
        fmt::format("plan.txt:1: the number of stages is '{}', not one from 0 to 65536", number));
  EXPECT_EQ(parse_error(header + "0: F0\n"),
            "plan.txt:1: 2 stages are announced, but stage 1 has no line");
  EXPECT_EQ(parse_error(header + "0: F0\n1: F0\n0: F1\n"),
            "plan.txt:4: stage 0 has a line already, line 2");
  EXPECT_EQ(parse_error(header + "2: F0\n"),
            "plan.txt:2: stage 2, but line 1 announces 2 (they count from 0)");
  EXPECT_EQ(parse_error(header + "F0 B0\n"),
            "plan.txt:2: expected a stage and its actions, as in \"0: F0 >F0 <B0 B0\"");
  for (const char* label : {"", "x", "-1", "1 2"})
    EXPECT_TRUE(contains(parse_error(header + label + ": F0\n"),
                         fmt::format("plan.txt:2: '{}' is not the number of a stage", label)))
        << parse_error(header + label + ": F0\n");
  EXPECT_EQ(parse_error(header + "0: F0 F1 B0 B2\n"),
            "plan.txt:2: 'B2' is out of range: line 1 announces 2 microbatches (they count from "
            "0)");
}

TEST(Schedule, RefusesWordsThatAreNoActions) {
  for (const char* word : {"F", "G0", "0", "f0", "F-1", "F0*", "B1*", "<0", ">F", ">*", "<", "*",
                           ">>F0", "F0x", "F0**", "<F0**", "F99999999999", "F0F1"}) {
    const std::string error = parse_error(fmt::format("stages 1 microbatches 2\n0: F0 {}", word));
    EXPECT_TRUE(error.starts_with(fmt::format("plan.txt:2: '{}' is not an action", word))) << error;
  }
}

TEST(Schedule, WordsInErrorsAreShortAndPrintable) {
  const std::string error =
      parse_error("stages 1 microbatches 1\n0: \x1b[31m" + std::string(5000, 'x'));
  EXPECT_TRUE(contains(error, "'\\x1b[31mxxxxxxxxxxxxxx")) << error;
  EXPECT_LT(error.size(), 200U);
}

TEST(Schedule, ReadsFiles) {
  const TempFolder folder;
  const std::string path = (folder.path() / "plan.txt").string();
  write_file(path, kText);
  EXPECT_EQ(to_text(read_schedule(path)), kText);
  write_file(path, "stages 1 microbatches 1\n0: F0 B0 F1\n");
  EXPECT_TRUE(error_of([&] { read_schedule(path); }).starts_with(path + ":2: 'F1'"));
  EXPECT_NE(error_of([&] { read_schedule(path + ".absent"); }), "");
  EXPECT_NE(error_of([&] { read_schedule(folder.path().string()); }), "");
  write_file(path, std::string((16 << 20) + 1, '#'));
  EXPECT_TRUE(contains(error_of([&] { read_schedule(path); }), "larger than 16 MiB"));
}

}  // namespace
}  // namespace lab::schedule_test
