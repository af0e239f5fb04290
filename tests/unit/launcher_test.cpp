// The launcher: whatever a rank does, its job ends soon, the cause is named, nothing is left.
#include "common/run/launch/launcher.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/file.h>

#include <string>
#include <thread>
#include <vector>

#include "common/run/launch/job.h"
#include "common/run/rendezvous/job_keys.h"
#include "tests/unit/launcher_fixture.h"
#include "tests/unit/program_run.h"

namespace lab::launcher_test {
namespace {

TEST_F(Launcher, PrintsLinesBehindTheirRank) {
  EXPECT_EQ(run("ok", 3), 0) << output_;
  for (int rank = 0; rank < 3; ++rank)
    EXPECT_TRUE(said(fmt::format("[{0}] rank {0} of 3: sum 6\n", rank))) << output_;
}

TEST_F(Launcher, SharesTheCores) {
  const auto cores = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  EXPECT_EQ(run("say_threads", 2), 0) << output_;
  EXPECT_TRUE(said(fmt::format("[1] threads {}\n", std::max(1, cores / 2)))) << output_;
}

TEST_F(Launcher, OthersWaitAsLongAsTheFirstRankGoesOn) {
  EXPECT_EQ(run("work_for_long", 3, /*who=*/0), 0) << output_;
  EXPECT_EQ(count_of(output_, "[0] worked\n"), 1) << output_;
  EXPECT_EQ(count_of(output_, "waited\n"), 2) << output_;
  EXPECT_NE(run("work_for_long", 3, /*who=*/1), 0) << output_;
  EXPECT_TRUE(said("the work of rank 0 makes no progress: nothing was heard from it for 1 s"))
      << output_;
}

TEST_F(Launcher, ExplainsADeadlockOnce) {
  EXPECT_EQ(run("deadlock", 3), kDiagnosedExit);
  EXPECT_EQ(count_of(output_, "error: deadlock: ranks 0, 1 and 2 wait"), 1) << output_;
  EXPECT_TRUE(said("circle: ")) << output_;
}

TEST_F(Launcher, NoAlarmWhileMuchIsMoved) {
  ProgramRun program = start("move_much", 3);
  EXPECT_EQ(program.wait(60), 0) << program.output();
  EXPECT_EQ(count_of(program.output(), "done"), 3) << program.output();
}

TEST_F(Launcher, RankKilledBeforeTheRendezvous) {
  EXPECT_EQ(run("kill_before_rendezvous", 3), 128 + SIGKILL);
  EXPECT_TRUE(said("error: rank 1 was killed (signal 9: SIGKILL)")) << output_;
}

TEST_F(Launcher, AllRanksKilledAlike) {
  EXPECT_EQ(run("kill_before_rendezvous", 3, /*who=*/-1), 128 + SIGKILL);
  EXPECT_TRUE(said("error: all ranks were killed (signal 9: SIGKILL)\n")) << output_;
}

TEST_F(Launcher, RankKilledInABigAllReduce) {
  EXPECT_EQ(run("kill_in_all_reduce", 3), 128 + SIGKILL);
  EXPECT_TRUE(said("error: rank 1 was killed (signal 9: SIGKILL) while rank")) << output_;
  EXPECT_TRUE(said("all_reduce #")) << output_;
}

TEST_F(Launcher, RankKilledInSend) {
  EXPECT_EQ(run("kill_in_send", 2), 128 + SIGKILL);
  EXPECT_TRUE(said("error: rank 1 was killed (signal 9: SIGKILL) while rank")) << output_;
  EXPECT_TRUE(said("recv(from 1")) << output_;
}

TEST_F(Launcher, RankThatCrashes) {
  EXPECT_EQ(run("end_by_signal", 3, 2), 128 + SIGSEGV);
  EXPECT_TRUE(said("error: rank 2 was killed (signal 11: SIGSEGV) while rank")) << output_;
}

TEST_F(Launcher, StoppedRank) {
  EXPECT_EQ(run("stop", 3, 2), kDiagnosedExit);
  EXPECT_EQ(count_of(output_, "error: rank 2 is stopped"), 1) << output_;
  EXPECT_TRUE(said("barrier")) << output_;
}

TEST_F(Launcher, RankThatEndsTooEarlyWithoutAnError) {
  EXPECT_EQ(run("exit_without_a_word", 3), kDiagnosedExit);
  EXPECT_EQ(count_of(output_, "error: rank 1 exited with code 0 while rank"), 1) << output_;
  EXPECT_EQ(run("return_early", 3), kDiagnosedExit);
  EXPECT_EQ(count_of(output_, "error: rank 1 exited with code 0 while rank"), 1) << output_;
  EXPECT_EQ(run("exit_before_rendezvous", 3), kDiagnosedExit);
  EXPECT_EQ(count_of(output_, "error: rank 1 exited with code 0"), 1) << output_;
  EXPECT_TRUE(said("rank 0 waits in the rendezvous")) << output_;
}

TEST_F(Launcher, RankWithAnErrorOfItsOwn) {
  EXPECT_EQ(run("throw_error", 3), 1);
  EXPECT_EQ(count_of(output_, "[1] error: the disk is full\n"), 1) << output_;
  EXPECT_EQ(count_of(output_, "the disk is full"), 1) << output_;
  EXPECT_EQ(count_of(output_, "error: rank 1 exited with code 1 while rank"), 1) << output_;
  EXPECT_EQ(run("throw_with_a_posted_collective", 3, 1), 1);
  EXPECT_EQ(count_of(output_, "error: rank 1 exited with code 1 while rank"), 1) << output_;
  EXPECT_EQ(run("exit_with_three", 3, 2), 3);
  EXPECT_TRUE(said("error: rank 2 exited with code 3 while rank")) << output_;
}

TEST_F(Launcher, RanksThatDisagree) {
  EXPECT_EQ(run("disagree", 3, 2), 1);
  EXPECT_EQ(count_of(output_,
                     "error: the ranks disagree about the corpus: rank 0 has stories.txt, rank 2 "
                     "has my own stories\n"),
            1)
      << output_;
  EXPECT_TRUE(output_.ends_with("\nall ranks exited with code 1\n")) << output_;
}

TEST_F(Launcher, TwoJobsAtOnce) {
  ProgramRun first = start("ok", 3);
  ProgramRun second = start("ok", 2);
  EXPECT_EQ(first.wait(), 0) << first.output();
  EXPECT_EQ(second.wait(), 0) << second.output();
  EXPECT_TRUE(first.contains("[2] rank 2 of 3: sum 6")) << first.output();
  EXPECT_TRUE(second.contains("[1] rank 1 of 2: sum 3")) << second.output();
  place_.expect_nothing_left();
}

TEST_F(Launcher, CtrlCEndsRanksThatDoNotCare) {
  ProgramRun program = start("loop", 3);
  program.wait_for("[2] ready");
  program.send_signal(SIGINT);
  EXPECT_EQ(program.wait(kSoon), 130) << program.output();
  EXPECT_FALSE(program.contains("error")) << program.output();
  place_.expect_nothing_left();
}

TEST_F(Launcher, CtrlCLetsRanksFinish) {
  ProgramRun program = start("interrupted", 3);
  for (const char* ready : {"[0] ready", "[1] ready", "[2] ready"}) program.wait_for(ready);
  program.send_signal(SIGINT);
  EXPECT_EQ(program.wait(kSoon), 130);
  EXPECT_EQ(count_of(program.output(), "saved"), 3) << program.output();
  place_.expect_nothing_left();
}

TEST_F(Launcher, CtrlCWaitsForALongStep) {
  ProgramRun program = start("interrupted_in_a_long_step", 2);
  for (const char* ready : {"[0] ready", "[1] ready"}) program.wait_for(ready);
  program.send_signal(SIGINT);
  program.wait_for("waiting for the step to end; Ctrl-C again to kill\n");
  EXPECT_EQ(program.wait(20), 130);
  EXPECT_EQ(count_of(program.output(), "saved"), 2) << program.output();
  EXPECT_EQ(count_of(program.output(), "waiting for"), 1) << program.output();
  EXPECT_FALSE(program.contains("killed")) << program.output();
  place_.expect_nothing_left();
}

TEST_F(Launcher, CtrlCDoesNotWaitForRanksThatCannotFinish) {
  ProgramRun program = start("fail_to_save", 3);
  for (const char* ready : {"[0] ready", "[1] ready", "[2] ready"}) program.wait_for(ready);
  program.send_signal(SIGINT);
  EXPECT_EQ(program.wait(kSoon), 130);
  for (const char* line :
       {"[1] error: the disk is full\n",
        "\nkilled before they could write a checkpoint of this step: ranks 0 and 2\n",
        "\nerror: rank 1 exited with code 1; the others were ended\n"})
    EXPECT_EQ(count_of(program.output(), line), 1) << program.output();
  place_.expect_nothing_left();
}

/// Ctrl-Z stops the launcher, and with it the store, but not the ranks.
TEST_F(Launcher, RanksGoOnWhileItIsStopped) {
  ProgramRun program = start("interrupted", 2);
  for (const char* ready : {"[0] ready", "[1] ready"}) program.wait_for(ready);
  program.send_signal(SIGSTOP);
  std::this_thread::sleep_for(std::chrono::seconds(10));  // a call of the store gives up after 8 s
  program.send_signal(SIGCONT);
  program.send_signal(SIGINT);
  EXPECT_EQ(program.wait(20), 130) << program.output();
  EXPECT_EQ(count_of(program.output(), "saved"), 2) << program.output();
  EXPECT_EQ(count_of(program.output(), "error"), 0) << program.output();
  place_.expect_nothing_left();
}

TEST_F(Launcher, SecondCtrlCKills) {
  ProgramRun program = start("deaf", 2);
  for (const char* ready : {"[0] ready", "[1] ready"}) program.wait_for(ready);
  program.send_signal(SIGTERM);
  program.send_signal(SIGINT);
  const int code = program.wait(5);  // the kernel may hand them over in any order
  EXPECT_TRUE(code == 128 + SIGTERM || code == 128 + SIGINT) << code;
  EXPECT_TRUE(program.contains(
      "\nkilled before they could write a checkpoint of this step: ranks 0 and 1\n"))
      << program.output();
  place_.expect_nothing_left();
}

/// Blocks until no rank holds the lock, as the kernel sees to when its holder ends.
void wait_until_unlocked(const std::string& file) {
  const int descriptor = open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  EXPECT_EQ(flock(descriptor, LOCK_EX), 0);
  close(descriptor);
}

TEST_F(Launcher, NoRankSurvivesALauncherThatIsKilled) {
  ProgramRun program = start("deaf", 2);
  program.wait_for("[1] ready");
  program.send_signal(SIGKILL);
  EXPECT_EQ(program.wait(kSoon), 128 + SIGKILL);
  wait_until_unlocked(place_.lock());
}

TEST_F(Launcher, NobodyReadsTheOutput) {
  const std::string line =
      fmt::format("{} chatter --ranks 2 --lock {} | head -n 1", LAUNCH_CHILD, place_.lock());
  ProgramRun program({"/bin/bash", "-c", line + "; exit ${PIPESTATUS[0]}"}, place_.environment());
  EXPECT_EQ(program.wait(kSoon), 128 + SIGPIPE) << program.output();
  place_.expect_nothing_left();
}

TEST_F(Launcher, OutputsThatAreLost) {
  const std::string line =
      fmt::format("exec {} ok --ranks 2 --lock {} >/dev/full", LAUNCH_CHILD, place_.lock());
  ProgramRun program({"/bin/bash", "-c", line}, place_.environment());
  EXPECT_EQ(program.wait(kSoon), 128 + SIGPIPE);
  EXPECT_EQ(program.output(),
            "error: cannot write the output of the ranks: No space left on device\n");
}

TEST_F(Launcher, OutputsThatAreClosed) {
  for (const char* closed : {">&-", "<&- >&-", ">&- 2>&-"}) {
    const std::string line =
        fmt::format("exec {} ok --ranks 2 --lock {} {}", LAUNCH_CHILD, place_.lock(), closed);
    ProgramRun program({"/bin/bash", "-c", line}, place_.environment());
    EXPECT_EQ(program.wait(kSoon), 0) << closed << '\n' << program.output();
    EXPECT_EQ(program.output(), "") << closed;
    place_.expect_nothing_left();
  }
}

TEST_F(Launcher, CommandLinesThatMakeNoSense) {
  ProgramRun none({LAUNCH_CHILD, "ok", "--ranks", "0"});
  EXPECT_EQ(none.wait(), 2);
  EXPECT_TRUE(none.contains("error: --ranks: 0 does not lie between 1 and 64")) << none.output();
  ProgramRun both({LAUNCH_CHILD, "ok", "--ranks", "2", "--rank", "0", "--world-size", "2"});
  EXPECT_EQ(both.wait(), 2);
  EXPECT_TRUE(both.contains("give one or the other")) << both.output();
  ProgramRun other({LAUNCH_CHILD, "ok", "--ranks", "2"}, {{"RANK", "0"}, {"WORLD_SIZE", "3"}});
  EXPECT_EQ(other.wait(), 2);
  EXPECT_TRUE(other.contains("error: --ranks 2 contradicts the environment")) << other.output();
  ProgramRun host({LAUNCH_CHILD, "ok", "--ranks", "2", "--nnodes", "2"});
  EXPECT_EQ(host.wait(), 2);
  EXPECT_TRUE(host.contains("error: --nnodes 2 needs --node-rank")) << host.output();
  // Stands for this machine's own name, which may lead to its loopback.
  ProgramRun name({LAUNCH_CHILD, "ok", "--ranks", "2", "--nnodes", "2", "--node-rank", "0",
                   "--master-addr", "0x7f000001"});
  EXPECT_EQ(name.wait(), 1);
  EXPECT_TRUE(
      name.contains("error: --master-addr 0x7f000001 is 127.0.0.1 on this host, where "
                    "other hosts cannot reach it"))
      << name.output();
}

}  // namespace
}  // namespace lab::launcher_test
