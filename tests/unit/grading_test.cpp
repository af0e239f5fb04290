// What turns numbers into verdicts: tolerances, diagnoses, points, and the tests of the tests.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <string>

#include "common/error.h"
#include "tests/grading/compare.h"
#include "tests/grading/lab_points.h"
#include "tests/grading/mutants.h"
#include "tests/grading/operations.h"
#include "tests/grading/program_run.h"
#include "tests/grading/score.h"
#include "tests/grading/task_result.h"
#include "tests/unit/temp_folder.h"

namespace lab::grading::grading_test {
namespace {

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

Expected expected() {
  return {.what = "the numbers",
          .values = {1, 2, -3, 0},
          .tolerance = {1e-3},
          .name = [](size_t i) { return "element " + std::to_string(i); },
          .mistakes =
              [] {
                return std::vector<Mistake>{{{1, 2, -3, 0}, "no mistake here"},
                                            {{1.2, 4.2, 9.2, 0}, "nearly squared"},
                                            {{1, 4, 9, 0}, "they are squared"}};
              },
          .if_not_finite = "too large for exp"};
}

TEST(Difference, NoneWithinTolerance) {
  EXPECT_EQ(difference({1.0009, 2, -3, -0.0009}, expected()), "");
}

TEST(Difference, NamesTheMistakeThatExplainsTheNumbers) {
  const std::string message = difference({1, 4.0001, 9, 0}, expected());
  EXPECT_TRUE(message.starts_with("they are squared\n")) << message;
  EXPECT_TRUE(contains(message, "element 2: got 9, expected -3")) << message;
}

TEST(Difference, AMistakeThatPredictsTheRightNumbersIsNotTold) {
  EXPECT_FALSE(contains(difference({1, 2, -3, 0.5}, expected()), "no mistake here"));
}

TEST(Difference, OfSeveralMistakesTheClosestIsTold) {
  Expected loose = expected();
  loose.tolerance = {0.3};
  EXPECT_TRUE(difference({1.01, 4.01, 9.01, 0}, loose).starts_with("they are squared\n"));
  EXPECT_TRUE(difference({1.19, 4.19, 9.19, 0}, loose).starts_with("nearly squared\n"));
}

TEST(Difference, MistakesThatLookAlikeAreAllKept) {
  Expected alike = expected();
  alike.mistakes = [] {
    return std::vector<Mistake>{
        {{9, 9, 9, 9}, "another"}, {{5, 5, 5, 5}, "first"}, {{5, 5, 5, 5.0001}, "second"}};
  };
  take_explanations();
  EXPECT_TRUE(difference({5, 5, 5, 5}, alike).starts_with("first\n"));
  difference({7, 7, 7, 7}, alike);  // explained by none
  EXPECT_EQ(take_explanations(), (std::vector<std::vector<std::string>>{{"first", "second"}}));
  EXPECT_TRUE(take_explanations().empty());
}

TEST(Difference, NamesAConstantFactor) {
  const std::string message = difference({3, 6, -9, 0}, expected());
  EXPECT_TRUE(contains(message, "3 times what they should be")) << message;
}

TEST(Difference, NamesNoFactorOfWhatIsBelowTheTolerance) {
  const Expected large{.what = "y", .values = {1e16, -3e15, 2e15}, .tolerance = {1e10}};
  EXPECT_TRUE(contains(difference({65504, -65504, 65504}, large), "3 of 3 numbers are wrong"));
}

TEST(Difference, NamesZeros) {
  EXPECT_TRUE(contains(difference({0, 0, 0, 0}, expected()), "all zero"));
}

TEST(Difference, TellsNumbersThatAreRoughlyRight) {
  Expected right{.what = "y", .values = {1.5, -2, 0.25}, .tolerance = {1e-6}};
  const std::string roughly = "right in the first digits only";
  EXPECT_TRUE(contains(difference({1.501, -2.002, 0.25}, right), roughly));
  EXPECT_FALSE(contains(difference({1.51, -2.03, 0.25}, right), roughly));
  EXPECT_FALSE(contains(difference({1.5, -2.002, 0.25}, right), roughly));  // one of three
  right.values = {1000, 7, 3};
  EXPECT_FALSE(contains(difference({1001, 6, 3}, right), roughly));  // counts
}

TEST(Difference, CountsWhatItCannotExplain) {
  EXPECT_TRUE(contains(difference({1, 2, -3, 0.5}, expected()), "1 of 4 numbers is wrong"));
}

TEST(Difference, SaysWhereNumbersAreWrong) {
  const Expected right{.what = "y", .values = {1, 2, 3, 4, 5}, .tolerance = {0.1}};
  EXPECT_TRUE(
      contains(difference({1, 2, 3, 9, 9}, right), "y: 2 of 5 numbers are wrong, the last"));
  EXPECT_TRUE(contains(difference({9, 9, 3, 4, 5}, right), "2 of 5 numbers are wrong, the first"));
  EXPECT_TRUE(contains(difference({1, 9, 9, 4, 5}, right), "are wrong, elements 1 to 2\n"));
  EXPECT_TRUE(contains(difference({9, 2, 3, 4, 9}, right), "2 of 5 numbers are wrong\n"));
  EXPECT_TRUE(
      contains(difference({2, 1, 3, 4, 5}, right), "right numbers, but 2 of 5 in the wrong"));
}

TEST(Difference, NotFiniteIsNeverRight) {
  for (const double bad : {std::nan(""), HUGE_VAL, -HUGE_VAL}) {
    const std::string message = difference({1, bad, -3, 0}, expected());
    EXPECT_TRUE(message.starts_with("too large for exp\nelement 1: got ")) << message;
  }
  Expected infinite_tolerance = expected();
  infinite_tolerance.tolerance = {std::nan("")};
  EXPECT_NE(difference({1, 2, -3, 0}, infinite_tolerance), "");
}

TEST(Difference, NamesMemoryThatWasNotWritten) {
  const std::string message =
      difference({1, -1.694739e38}, {.what = "x", .values = {1, 2}, .tolerance = {0.1}});
  EXPECT_TRUE(contains(message, "memory that nothing was written to")) << message;
}

TEST(Difference, CountsMustAgree) {
  EXPECT_TRUE(contains(difference({1, 2, -3}, expected()), "3 numbers were returned"));
}

LabPoints points() {
  return {
      .number = "09",
      .folder = "09_example",
      .title = "an example",
      .tasks = {{"1", "first", 40, "Task 1", "look here"}, {"2", "second", 60, "Task 2", "there"}}};
}

TaskResult passed(const std::string& task) { return {.task = task, .tests = 2}; }
TaskResult failed(const std::string& task) {
  return {.task = task,
          .tests = 3,
          .failures = {{"adds up", "wrong sum\ndetails"}, {"again", "wrong sum\nother"}}};
}

TEST(Score, AddsPointsOfTasksThatPassed) {
  const Score all = score(points(), {{"1", passed("1")}, {"2", passed("2")}});
  EXPECT_EQ(all.points, 100);
  EXPECT_TRUE(all.report.ends_with("\nlab 09: 100/100\n")) << all.report;

  const Score some = score(points(), {{"1", passed("1")}, {"2", failed("2")}});
  EXPECT_EQ(some.points, 40);
  EXPECT_TRUE(some.report.ends_with("\nlab 09: 40/100\n")) << some.report;
  EXPECT_TRUE(contains(some.report, "see \"Task 2\" in labs/09_example/README.md"));
  EXPECT_LT(some.report.find("wrong sum"), some.report.find("first")) << "failures come first";
  EXPECT_EQ(some.report.find("wrong sum"), some.report.rfind("wrong sum")) << "told once";
}

TEST(Score, WhatWasNotGradedIsNotZero) {
  TaskResult broken = passed("2");
  broken.not_graded = "the disk is full";
  for (const auto& results :
       {TaskResults{{"1", passed("1")}}, TaskResults{{"1", passed("1")}, {"2", broken}},
        TaskResults{{"1", passed("1")}, {"2", {.task = "2"}}}}) {
    const Score total = score(points(), results);
    EXPECT_FALSE(total.graded);
    EXPECT_TRUE(contains(total.report, "lab 09: not graded, run again")) << total.report;
    EXPECT_FALSE(contains(total.report, "/100")) << total.report;
  }
}

TEST(Score, TheProgramJudgesWhatComposesTheTasks) {
  TaskResults results{{"1", passed("1")}, {"2", passed("2")}};
  EXPECT_FALSE(score(points(), results, /*has_program=*/true).graded) << "it has not run";
  results[kProgramTask] = passed(kProgramTask);
  const Score all = score(points(), results, true);
  EXPECT_EQ(all.points, 100);
  EXPECT_TRUE(contains(all.report, "      the lab's program                passed\n"))
      << all.report;
  results[kProgramTask] = failed(kProgramTask);
  const Score total = score(points(), results, true);
  EXPECT_TRUE(total.graded);
  EXPECT_EQ(total.points, 40);
  EXPECT_TRUE(contains(total.report, "wrong sum")) << total.report;
  results["1"] = failed("1");
  EXPECT_EQ(score(points(), results, true).points, 60) << "the program is for finished labs";
}

TEST(Score, KeepsTheLineOfNumbersAndSaysWhatItHides) {
  const std::string report = score(points(), {{"1", failed("1")}, {"2", passed("2")}}).report;
  EXPECT_TRUE(contains(report, "wrong sum\n    details\n")) << report;
  EXPECT_TRUE(contains(report, "(1 more test of this task says the same)")) << report;
}

/// In a report of one task as in the score of all.
TEST(TaskReport, TellsTheSameOfOtherScenariosOnce) {
  const TaskResult result{
      .task = "1",
      .tests = 3,
      .failures = {{"two ranks", "y on rank 0: 4 of 4 numbers are wrong\n1, 2"},
                   {"six ranks", "y on rank 5: 9 of 12 numbers are wrong\n3, 4"},
                   {"one rank", "y is 2 times what it should be"}}};
  const std::string report = task_report(points(), result);
  EXPECT_TRUE(contains(report, "4 of 4 numbers")) << report;
  EXPECT_FALSE(contains(report, "9 of 12 numbers")) << report;
  EXPECT_TRUE(contains(report, "\ntask 1 · one rank: y is 2 times what it should be\n")) << report;
  EXPECT_TRUE(contains(report, "(1 more test of this task says the same)")) << report;
}

TEST(TaskReport, UnwrittenTaskIsOneLine) {
  const std::string todo = "task 1 is not written yet: a.cpp, TODO(1)";
  TaskResult result{.task = "1", .tests = 2, .failures = {{"x", todo}, {"y", todo}}};
  EXPECT_TRUE(task_report(points(), result).starts_with(todo + "\n"));
  EXPECT_TRUE(contains(score(points(), {{"1", result}, {"2", passed("2")}}).report,
                       "what to fix:\n  " + todo + "\n"));
  result.failures[1].message = "rank 0 crashed";
  EXPECT_TRUE(contains(task_report(points(), result), "task 1 · y: rank 0 crashed\n"));
}

TEST(TaskReport, ANoteIsForATaskThatPasses) {
  TaskResult result{.task = "1", .tests = 1, .notes = {"other bits"}};
  EXPECT_TRUE(contains(task_report(points(), result), "note: other bits\n"));
  result.failures.push_back({"a test", "wrong"});
  EXPECT_FALSE(contains(task_report(points(), result), "other bits"));
}

TEST(TaskReport, TellsFailurePlaceAndPoints) {
  const std::string report = task_report(points(), failed("1"));
  EXPECT_TRUE(contains(report, "wrong sum")) << report;
  EXPECT_TRUE(contains(report, "see \"Task 1\" in labs/09_example/README.md")) << report;
  EXPECT_TRUE(contains(report, "0/40")) << report;
}

TEST(TaskResult, SurvivesItsFileForTheSameVersionOnly) {
  const TempFolder folder;
  const auto file = folder.path() / "results" / "1.json";
  TaskResult result = failed("1");
  result.failures[0].message = "not UTF-8: \xff\xfe";
  write_result(file, result, "abc");
  const auto got = read_result(file, "abc");
  ASSERT_TRUE(got.has_value());
  EXPECT_EQ(got->task, "1");
  EXPECT_EQ(got->tests, 3);
  EXPECT_EQ(got->failures[1].message, "wrong sum\nother");
  EXPECT_FALSE(got->passed());
  EXPECT_FALSE(read_result(file, "another").has_value());
  EXPECT_TRUE(read_result(file, "").has_value()) << "of any version";
  EXPECT_FALSE(read_result(folder.path() / "absent.json", "abc").has_value());
  std::ofstream(file) << "{\"task\": ";
  EXPECT_FALSE(read_result(file, "abc").has_value());
}

TEST(Points, OfLab01AddUpToAHundred) {
  const LabPoints lab01 =
      read_points(std::string(LAB_SOURCE_DIR) + "/labs/01_single_gpu/points.json");
  EXPECT_EQ(lab01.number, "01");
  EXPECT_EQ(lab01.total(), 100);
  EXPECT_EQ(lab01.task("1b").title, "causal_lm_loss");
  EXPECT_THROW(lab01.task("7"), Error);
}

TEST(Points, IncompleteFileIsAnError) {
  const TempFolder folder;
  std::ofstream(folder.path() / "points.json") << R"({"lab": "01_a", "title": "t", "tasks": [{}]})";
  EXPECT_THROW(read_points(folder.path() / "points.json"), Error);
  EXPECT_THROW(read_points(folder.path() / "absent.json"), Error);
}

TEST(Mutant, MustFailItsTaskWithItsMessageAndNoOther) {
  const Mutant header{.name = "m", .tasks = {"2"}, .message = "wrong sum"};
  EXPECT_EQ(check_mutant(header, {{"1", passed("1")}, {"2", failed("2")}}), "");
  EXPECT_NE(check_mutant(header, {{"1", passed("1")}, {"2", passed("2")}}), "");
  EXPECT_NE(check_mutant(header, {{"1", failed("1")}, {"2", failed("2")}}), "");
  EXPECT_NE(check_mutant(header, {{"1", passed("1")}}), "");
  EXPECT_NE(check_mutant({.name = "m", .tasks = {"2"}, .message = "another"},
                         {{"1", passed("1")}, {"2", failed("2")}}),
            "");
  TaskResult broken = failed("2");
  broken.not_graded = "harness";
  EXPECT_NE(check_mutant(header, {{"1", passed("1")}, {"2", broken}}), "");
}

std::vector<Mutant> read(const std::string& text) {
  const TempFolder folder;
  std::ofstream(folder.path() / "mutants.txt") << text;
  return read_mutants(folder.path() / "mutants.txt");
}

TEST(Mutant, IsReadFromTheFileOfItsLab) {
  const std::vector<Mutant> mutants = read(
      "What this file is.\n\n# first\ntask: 1b 3\nmessage: a: b\nwhy: c\n"
      "<<<<\n# x\ny\n====\nz\n>>>>\n<<<<\nu\n====\n>>>>\n\n# second\ntask: "
      "none\n<<<<\na\n====\nb\n>>>>\n");
  ASSERT_EQ(mutants.size(), 2U);
  EXPECT_EQ(mutants[0].name, "first");
  EXPECT_EQ(mutants[0].tasks, (std::vector<std::string>{"1b", "3"}));
  EXPECT_EQ(mutants[0].message, "a: b");
  ASSERT_EQ(mutants[0].edits.size(), 2U);
  EXPECT_EQ(mutants[0].edits[0].find, "# x\ny\n");
  EXPECT_EQ(mutants[0].edits[1].replace, "");
  EXPECT_TRUE(mutants[1].is_correct());
}

TEST(Mutant, AnIncompleteFileIsAnError) {
  EXPECT_THROW(read("# a\ntask: 1\nmessage: m\n"), Error);
  EXPECT_THROW(read("# a\ntask: 1\n<<<<\nx\n====\ny\n>>>>\n"), Error);
  EXPECT_THROW(read("# a\ntask: 1\nmesage: m\n"), Error);
  EXPECT_THROW(read_mutants("/no/such/file"), Error);
}

TEST(Mutant, ChangesWhatOccursExactlyOnce) {
  const Mutant mutant{.name = "m", .edits = {{"b\n", "b\na\n"}, {"a\n", "x\n"}}};
  EXPECT_EQ(mutant.apply("a\nb\nc\n"), "x\nb\na\nc\n") << "places are those of the solution";
  EXPECT_THROW(mutant.apply("a\nb\na\n"), Error) << "twice";
  EXPECT_THROW(mutant.apply("a\nc\n"), Error) << "not at all";
}

TEST(Mutant, KnowsTheTasksWhoseFunctionsItChanges) {
  const std::string solution = "h\n// Task 1a\nx\n// Tasks 2 and 3\ny\n// Task 4: why\nz\n";
  const std::vector<std::string> all{"1a", "2", "3", "4"};
  const auto edited = [&](const std::vector<Mutant::Edit>& edits) {
    return Mutant{.name = "m", .edits = edits}.edited_tasks(solution, all);
  };
  using Tasks = std::vector<std::string>;
  EXPECT_EQ(edited({{"z\n", ""}, {"x\n", ""}}), (Tasks{"4", "1a"}));
  EXPECT_EQ(edited({{"y\n", ""}}), (Tasks{"2", "3"}));
  EXPECT_EQ(edited({{"z\n", ""}, {"h\n", ""}}), Tasks{}) << "what all tasks may use";
}

TEST(Operations, OfManyOnlyThoseNextToTheWrongOneAreTold) {
  std::vector<Operation> sent;
  EXPECT_EQ(in_words(sent), "nothing");
  for (uint64_t i = 0; i < 44; ++i)
    sent.push_back({.kind = OpKind::kAllReduce, .group = "world", .bytes = i % 2 == 0 ? 4 : i});
  EXPECT_EQ(in_words({sent[0], sent[0], sent[1]}),
            "2 x all_reduce of 4 bytes, all_reduce of 1 bytes");
  EXPECT_EQ(in_words(sent, 2),
            "all_reduce of 4 bytes, all_reduce of 1 bytes, all_reduce of 4 bytes, all_reduce of 3 "
            "bytes, all_reduce of 4 bytes, all_reduce of 5 bytes and 38 more");
  EXPECT_EQ(in_words(sent, 41),
            "after 39 others all_reduce of 39 bytes, all_reduce of 4 bytes, all_reduce of 41 "
            "bytes, all_reduce of 4 bytes, all_reduce of 43 bytes");
}

TEST(Starter, MustFailByNamingItsTodoOnly) {
  const std::string todo = "task 1 is not written yet: a.cpp, TODO(1)";
  TaskResult clean{.task = "1", .tests = 2, .failures = {{"x", todo}, {"y", todo}}};
  EXPECT_EQ(check_starter(clean, "a.cpp"), "");
  EXPECT_NE(check_starter(clean, "b.cpp"), "");
  clean.failures[1].message = "rank 0 crashed";
  EXPECT_NE(check_starter(clean, "a.cpp"), "");
  clean.failures.pop_back();
  EXPECT_NE(check_starter(clean, "a.cpp"), "") << "one test passes";
}

TEST(Starter, IsUnwrittenWhileTheCallIsThere) {
  const TempFolder folder;
  const auto file = folder.path() / "a.cpp";
  std::ofstream(file) << "lab::not_implemented(\n    \"1a\", \"a.cpp\");";
  EXPECT_TRUE(is_unwritten(file, "1a"));
  EXPECT_FALSE(is_unwritten(file, "1"));
  EXPECT_FALSE(is_unwritten(file, "1b"));
}

}  // namespace
}  // namespace lab::grading::grading_test
