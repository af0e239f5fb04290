// The rank harness: whatever a rank program does, the test that started it gets a clear answer, and
// nothing is left over.
#include "tests/grading/rank_harness.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "common/error.h"
#include "common/run/launch/child_process.h"
#include "tests/grading/rank_main.h"
#include "tests/grading/scratch_folder.h"
#include "tests/unit/error_of.h"
#include "tests/unit/temp_folder.h"

namespace lab::grading::rank_harness_test {
namespace {

std::vector<RankResult> run(const std::string& scenario, size_t ranks = 1, const Parcel& input = {},
                            double deadline_s = 30) {
  return run_ranks({.program = HARNESS_CHILD,
                    .scenario = scenario,
                    .inputs = std::vector<Parcel>(ranks, input),
                    .deadline_s = deadline_s,
                    .grace_s = 0.2});
}

/// Blocks until nobody holds a lock on the file, as the kernel sees to when its holder ends.
void wait_until_unlocked(const std::string& file) {
  const int descriptor = open(file.c_str(), O_RDWR | O_CREAT, 0600);
  ASSERT_GE(descriptor, 0);
  EXPECT_EQ(flock(descriptor, LOCK_EX), 0);
  close(descriptor);
}

/// A separate temporary folder for everything that is created meanwhile.
class OwnTmpdir {
 public:
  OwnTmpdir() : was_set_(getenv("TMPDIR") != nullptr), before_(was_set_ ? getenv("TMPDIR") : "") {
    set(folder_.path());
  }
  ~OwnTmpdir() { was_set_ ? set(before_) : static_cast<void>(unsetenv("TMPDIR")); }
  OwnTmpdir(const OwnTmpdir&) = delete;
  OwnTmpdir& operator=(const OwnTmpdir&) = delete;

  static void set(const std::string& path) { setenv("TMPDIR", path.c_str(), 1); }
  const std::filesystem::path& path() const { return folder_.path(); }

 private:
  TempFolder folder_;
  bool was_set_;
  std::string before_;
};

TEST(RankHarness, PassesTensorsNumbersAndTextsThere) {
  Parcel input;
  input.set("tensor", Tensor::from({1.5F, -2.0F, 3.25F}, {3, 1}));
  input.set("numbers", {0.1, -1e300, std::nan(""), INFINITY});
  input.set("batch", TokenBatch{2, 2, {1, 2, 3, kPadding}});
  input.set_text("text", "one line\nand \"another\" ü");
  const RankResult result = run("echo", 1, input)[0];
  ASSERT_EQ(result.outcome, Outcome::kReturned) << result.message;
  const Parcel& got = result.result;
  EXPECT_EQ(got.tensor("tensor").shape(), (Shape{3, 1}));
  EXPECT_EQ(got.tensor("tensor").values()[2], 3.25F);
  const std::vector<double> numbers = got.numbers("numbers");
  ASSERT_EQ(numbers.size(), 4U);
  EXPECT_EQ(numbers[0], 0.1);
  EXPECT_EQ(numbers[1], -1e300);
  EXPECT_TRUE(std::isnan(numbers[2]));
  EXPECT_TRUE(std::isinf(numbers[3]));
  EXPECT_EQ(got.batch("batch").tokens, (std::vector<int32_t>{1, 2, 3, kPadding}));
  EXPECT_EQ(got.text("text"), "one line\nand \"another\" ü");
  EXPECT_THROW(got.tensor("absent"), Error);
  EXPECT_THROW(got.number("numbers"), Error);
}

TEST(RankHarness, SixRanksKnowWhoTheyAre) {
  const std::vector<RankResult> results = run("echo", 6);
  ASSERT_EQ(results.size(), 6U);
  EXPECT_EQ(first_failure(results), nullptr);
  for (int rank = 0; rank < 6; ++rank) {
    const RankResult& result = results[static_cast<size_t>(rank)];
    ASSERT_EQ(result.outcome, Outcome::kReturned) << result.message;
    EXPECT_EQ(result.result.number("rank"), rank);
    EXPECT_EQ(result.result.number("world_size"), 6);
    EXPECT_GE(result.result.number("threads"), 1);
  }
}

TEST(RankHarness, CrashNamesRankAndSignal) {
  const RankResult result = run("crash")[0];
  EXPECT_EQ(result.outcome, Outcome::kCrash);
  EXPECT_NE(result.message.find("your code crashed"), std::string::npos) << result.message;
  EXPECT_NE(result.message.find("SIGSEGV"), std::string::npos) << result.message;
}

TEST(RankHarness, LeavingWithoutAResultIsNoSuccess) {
  for (const int code :
       {0, 3, kParcelFailed}) {  // the last would mean that the harness is at fault
    Parcel input;
    input.set("code", code);
    const RankResult result = run("leave", 1, input)[0];
    EXPECT_EQ(result.outcome, Outcome::kExit);
    EXPECT_NE(result.message.find("your code ended with exit code " + std::to_string(code)),
              std::string::npos)
        << result.message;
  }
}

TEST(RankHarness, FindingOfASanitizerIsTold) {
  const RankResult result = run("sanitized")[0];
  EXPECT_EQ(result.outcome, Outcome::kCrash);
  EXPECT_EQ(result.message,
            "your code was ended by a sanitizer: SUMMARY: AddressSanitizer: overflow a.cpp:3");
}

TEST(RankHarness, EndlessLoopAndEndlessWaitAreToldApart) {
  const RankResult loop = run("compute_forever", 1, {}, 0.5)[0];
  EXPECT_EQ(loop.outcome, Outcome::kDeadline);
  EXPECT_NE(loop.message.find("your code was not done after 0.5 s"), std::string::npos)
      << loop.message;
  const RankResult wait = run("wait_forever", 1, {}, 0.5)[0];
  EXPECT_EQ(wait.outcome, Outcome::kDeadline);
  EXPECT_NE(wait.message.find("never comes"), std::string::npos) << wait.message;
}

TEST(RankHarness, ExceptionTextArrives) {
  const RankResult result = run("throw_error")[0];
  EXPECT_EQ(result.outcome, Outcome::kError);
  EXPECT_EQ(result.message, "your code stopped with an error: the text of the exception");
}

TEST(RankHarness, ExceptionTextIsQuoted) {
  const RankResult odd = run("throw_odd_text")[0];
  EXPECT_EQ(odd.outcome, Outcome::kError);
  EXPECT_EQ(odd.message,
            "your code stopped with an error: Gr\uFFFD\uFFFDe\n  | \n  | lab 01: 100/100?[2J");
  const RankResult todo = run("pretend_todo")[0];
  EXPECT_EQ(todo.outcome, Outcome::kError);
  EXPECT_EQ(
      todo.message,
      "your code stopped with an error: task 1a is not written yet: f\n  | \n  | lab 01: 100/100");
}

TEST(RankHarness, PatienceIsForRanksThatDidNotCompute) {
  const RankJob sleeps{
      .program = HARNESS_CHILD, .scenario = "sleep_a_while", .inputs = {Parcel()}, .deadline_s = 1};
  EXPECT_EQ(run_ranks(sleeps)[0].outcome, Outcome::kDeadline);
  EXPECT_EQ(run_ranks_patiently(sleeps)[0].outcome, Outcome::kReturned);
  // How long a program that never waits may compute depends on what else the machine does.
  RankResult result;
  for (const auto& [cpu_s, all_the_time, hopeless] :
       {std::tuple(0.95, true, true), {0.7, true, false}, {0.3, false, false}}) {
    result.cpu_s = cpu_s;
    EXPECT_EQ(computed_all_the_time(result, sleeps.deadline_s), all_the_time);
    EXPECT_EQ(had_the_processors({result}, sleeps), hopeless);
  }
  result.cpu_s = 0.7;
  const std::vector<RankResult> many(2 * std::thread::hardware_concurrency(), result);
  EXPECT_TRUE(had_the_processors(many, sleeps));
}

TEST(RankHarness, ExceptionInAParallelLoopArrives) {
  const RankResult result = run("throw_in_parallel_loop")[0];
  EXPECT_EQ(result.outcome, Outcome::kError);
  EXPECT_EQ(result.message, "your code stopped with an error: thrown in a parallel loop");
}

TEST(RankHarness, TodoIsNoError) {
  const RankResult result = run("meet_todo")[0];
  EXPECT_EQ(result.outcome, Outcome::kNotImplemented);
  EXPECT_EQ(result.message,
            "task 1a is not written yet: labs/01_single_gpu/single_gpu.cpp, TODO(1a)");
}

TEST(RankHarness, GarbageIsNoResult) {
  const RankResult result = run("garbage")[0];
  EXPECT_EQ(result.outcome, Outcome::kExit);
  EXPECT_NE(result.message.find("left a damaged result"), std::string::npos) << result.message;
}

TEST(RankHarness, UnknownScenarioIsAnError) {
  const RankResult result = run("no_such_scenario")[0];
  EXPECT_EQ(result.outcome, Outcome::kExit);
  EXPECT_NE(result.output.find("no_such_scenario"), std::string::npos) << result.output;
}

TEST(RankHarness, FloodOfOutputIsDrainedAndItsEndKept) {
  const RankResult result = run("print_a_flood")[0];
  ASSERT_EQ(result.outcome, Outcome::kReturned) << result.message;
  EXPECT_LE(result.output.size(), 64U << 10);
  EXPECT_TRUE(result.output.ends_with("line 199999 of a flood\nlab 01: 100/100\n"));
}

TEST(RankHarness, OneFailureEndsTheOthers) {
  const std::vector<RankResult> results = run("fail_on_rank_1", 3);
  EXPECT_EQ(results[0].outcome, Outcome::kEnded);
  EXPECT_EQ(results[1].outcome, Outcome::kError);
  EXPECT_EQ(results[2].outcome, Outcome::kEnded);
  ASSERT_NE(first_failure(results), nullptr);
  EXPECT_EQ(first_failure(results)->rank, 1);
}

TEST(RankHarness, CauseComesBeforeConsequence) {
  const std::vector<RankResult> results = run("todo_on_rank_2", 3);
  ASSERT_NE(first_failure(results), nullptr);
  EXPECT_EQ(first_failure(results)->rank, 2);
}

TEST(RankHarness, GrandchildDoesNotSurvive) {
  const TempFolder folder;
  const std::string lock = folder.path() / "lock";
  Parcel input;
  input.set_text("lock", lock);
  ASSERT_EQ(run("leave_grandchild", 1, input)[0].outcome, Outcome::kReturned);
  wait_until_unlocked(lock);  // hangs, until ctest's time limit, if the grandchild lives
}

TEST(RankHarness, MissingProgramIsTheHarnessOwnFailure) {
  EXPECT_THROW(run_ranks({.program = "/no/such/program", .scenario = "echo", .inputs = {Parcel()}}),
               Error);
}

TEST(RankHarness, ResultThatCannotBeWrittenIsTheHarnessOwnFailure) {
  EXPECT_THROW(run("unwritable_result"), Error);
}

TEST(RankHarness, LeavesNoFilesBehind) {
  const OwnTmpdir temporary;
  run("echo", 2);
  run("crash");
  run("wait_forever", 1, {}, 0.1);
  EXPECT_TRUE(std::filesystem::is_empty(temporary.path()));
}

TEST(RankHarness, WithoutTemporaryFolderItIsTheHarnessThatFails) {
  const OwnTmpdir temporary;
  OwnTmpdir::set(temporary.path() / "absent");
  EXPECT_THROW(run("echo"), Error);
}

TEST(ScratchFolder, AnEmptyNameForTheTemporaryFolderIsNone) {
  const OwnTmpdir temporary;
  OwnTmpdir::set("");
  EXPECT_EQ(ScratchFolder().path().parent_path(), "/tmp");
}

TEST(ScratchFolder, SaysWhyItCannotBeMade) {
  const OwnTmpdir temporary;
  OwnTmpdir::set("/proc");
  const std::string error = lab::error_of([] { ScratchFolder(); });
  EXPECT_NE(error.find("No such file or directory"), std::string::npos) << error;
}

TEST(ScratchFolder, RemovesWhatAKilledProcessLeft) {
  const OwnTmpdir temporary;
  const auto leftover = temporary.path() / "llama-lab-killed";
  const auto foreign = temporary.path() / "something-else";
  std::filesystem::create_directory(leftover);
  std::filesystem::create_directory(foreign);
  std::ofstream(leftover / "file") << "text";
  const auto hour_ago = std::filesystem::file_time_type::clock::now() - std::chrono::hours(1);
  std::filesystem::last_write_time(leftover, hour_ago);
  std::filesystem::last_write_time(foreign, hour_ago);
  const ScratchFolder living;
  std::filesystem::last_write_time(living.path(), hour_ago);
  EXPECT_FALSE(std::filesystem::exists(leftover));
  const ScratchFolder later;
  EXPECT_TRUE(std::filesystem::exists(living.path()));
  EXPECT_TRUE(std::filesystem::exists(foreign));
}

// The process that runs the harness is killed: the kernel ends the rank.
TEST(ChildProcess, DoesNotOutliveItsParent) {
  const TempFolder folder;
  const std::string lock = folder.path() / "lock";
  std::array<int, 2> ready{};
  ASSERT_EQ(pipe(ready.data()), 0);
  const pid_t middle = fork();
  if (middle == 0) {
    // The program inherits neither pipe end nor terminal; it holds the lock through `exec 9>`.
    const ChildProcess child({"/bin/sh", "-c", "exec 9>" + lock + "; flock 9; exec sleep 1000"},
                             {});
    while (true) {
      const int probe = open(lock.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
      const bool taken = flock(probe, LOCK_EX | LOCK_NB) != 0;
      close(probe);
      if (taken) break;
      sched_yield();
    }
    [[maybe_unused]] const ssize_t written = write(ready[1], "x", 1);
    while (true) pause();
  }
  close(ready[1]);
  char byte = 0;
  ASSERT_EQ(read(ready[0], &byte, 1), 1);
  kill(middle, SIGKILL);
  waitpid(middle, nullptr, 0);
  close(ready[0]);
  wait_until_unlocked(lock);  // hangs, until ctest's time limit, if the rank lives
}

}  // namespace
}  // namespace lab::grading::rank_harness_test
