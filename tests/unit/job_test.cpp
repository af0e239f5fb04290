// Job: ranks started by hand, by mpirun and by torchrun find each other, and explain themselves.
#include "common/run/launch/job.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "common/comm/store/memory_store.h"
#include "common/error.h"
#include "common/run/rendezvous/job_keys.h"
#include "common/run/rendezvous/process_state.h"
#include "common/run/rendezvous/rendezvous.h"
#include "common/run/watch/judge.h"
#include "tests/unit/error_of.h"
#include "tests/unit/free_port.h"
#include "tests/unit/held_process.h"
#include "tests/unit/program_run.h"

namespace lab::job_test {
namespace {

using Arguments = std::vector<std::string>;

class JobByHand : public testing::Test {
 protected:
  /// One rank, in a separate process.
  ProgramRun& start(const std::string& scenario, int rank, int world_size, const Arguments& where,
                    int who = 1) {
    Arguments command{LAUNCH_CHILD,   scenario,
                      "--rank",       std::to_string(rank),
                      "--who",        std::to_string(who),
                      "--lock",       place_.lock(),
                      "--world-size", std::to_string(world_size)};
    command.insert(command.end(), where.begin(), where.end());
    ranks_.push_back(std::make_unique<ProgramRun>(command, place_.environment()));
    return *ranks_.back();
  }
  void start_all(const std::string& scenario, int world_size, const Arguments& where, int who = 1) {
    for (int rank = 0; rank < world_size; ++rank) start(scenario, rank, world_size, where, who);
  }
  /// Waits for all; their exit codes in the order in which they were started.
  std::vector<int> codes(double deadline_s = kSoon) {
    std::vector<int> result;
    for (const auto& rank : ranks_) {
      result.push_back(rank->wait(deadline_s));
      all_ += rank->output();
    }
    place_.expect_nothing_left();
    return result;
  }
  const std::string& output(size_t index) const { return ranks_[index]->output(); }
  Arguments at_port() const { return {"--master-port", free_port()}; }
  Arguments in_folder() const { return {"--store", place_.store()}; }

  static constexpr double kSoon = 10;  // seconds
  CleanPlace place_;
  std::vector<std::unique_ptr<ProgramRun>> ranks_;
  std::string all_;  // what all have printed
};

using Codes = std::vector<int>;
const Codes kAllDiagnosed{kDiagnosedExit, kDiagnosedExit, kDiagnosedExit};

TEST(Job, OfOneRankNeedsNobody) {
  Job job(RankEnvironment{});
  const Tensor tensor = Tensor::from({2.0F}, {1});
  job.world().all_reduce(tensor);
  job.agree("corpus", "stories.txt");
  EXPECT_EQ(job.world().size(), 1);
  EXPECT_EQ(tensor.data()[0], 2.0F);
}

TEST_F(JobByHand, SaysWhoIsAwaited) {
  const std::string port = free_port();
  const Arguments where{"--master-port", port, "--timeout", "30"};
  start("ok", 1, 3, where)
      .wait_for("rank 1 waits for rank 0 at 127.0.0.1:" + port + " (30 s at most)\n");
  start("ok", 0, 3, where)
      .wait_for("rank 0 waits for rank 2 at 127.0.0.1:" + port + " (30 s at most)\n");
  start("ok", 2, 3, where);
  EXPECT_EQ(codes(), (Codes{0, 0, 0})) << all_;
  EXPECT_EQ(count_of(all_, "sum 6"), 3) << all_;
}

TEST_F(JobByHand, MeetsInAFolder) {
  start_all("ok", 3, in_folder());
  EXPECT_EQ(codes(), (Codes{0, 0, 0})) << all_;
  EXPECT_EQ(count_of(all_, "sum 6"), 3) << all_;
}

TEST_F(JobByHand, TwoJobsAtOnce) {
  std::vector<Arguments> places;
  {
    const Port one;
    const Port two;  // not the same, as both are held
    places = {{"--master-port", one.text()}, {"--master-port", two.text()}};
  }
  for (const Arguments& place : places) start_all("ok", 2, place);
  EXPECT_EQ(codes(), (Codes{0, 0, 0, 0})) << all_;
}

TEST(Rendezvous, RefusesAnotherVersionOfTheProgram) {
  MemoryStore store;
  store.set(job_keys::kVersion, std::to_string(kJobVersion + 1));
  store.set(job_keys::kWorldSize, "2");
  RankEnvironment environment;
  environment.rank = 1;
  environment.world_size = 2;
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(5);
  const std::string reason = fmt::format(
      "rank 1 on {} runs version {} of this program, but rank 0 version {}: build both "
      "from the same sources",
      host_name(), kJobVersion, kJobVersion + 1);
  EXPECT_EQ(error_of([&] { meet(store, environment, deadline); }), reason);
  EXPECT_EQ(store.try_get(job_keys::kRefusal), reason);  // for all other ranks
}

TEST(Rendezvous, RefusesAProgramThatDoesNotSayItsVersion) {
  MemoryStore store;
  store.set(job_keys::kWorldSize, "2");
  RankEnvironment environment;
  environment.rank = 1;
  environment.world_size = 2;
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(5);
  EXPECT_NE(error_of([&] { meet(store, environment, deadline); }).find("but rank 0 version 0"),
            std::string::npos);
}

TEST_F(JobByHand, ExplainsADeadlockOnce) {
  start_all("deadlock", 3, at_port());
  EXPECT_EQ(codes(), kAllDiagnosed) << all_;
  EXPECT_EQ(count_of(all_, "circle: "), 1) << all_;
  EXPECT_EQ(count_of(output(0), "error: deadlock: "), 1) << output(0);
  EXPECT_EQ(count_of(output(1), "rank 1 ends: deadlock: "), 1) << output(1);
  EXPECT_EQ(count_of(output(2), "rank 2 ends: deadlock: "), 1) << output(2);
}

TEST_F(JobByHand, NoAlarmWhileMuchIsMoved) {
  start_all("move_much", 3, at_port());
  EXPECT_EQ(codes(/*deadline_s=*/60), (Codes{0, 0, 0})) << all_;
  EXPECT_EQ(count_of(all_, "error"), 0) << all_;
}

TEST_F(JobByHand, ExplainsADeadlockInAFolder) {
  start_all("deadlock", 2, in_folder());
  EXPECT_EQ(codes(), (Codes{kDiagnosedExit, kDiagnosedExit})) << all_;
  EXPECT_EQ(count_of(all_, "circle: "), 1) << all_;
}

TEST_F(JobByHand, TwoProcessesWithOneRank) {
  const Arguments where = at_port();
  for (const int rank : {0, 1, 1}) start("ok", rank, 3, where);
  EXPECT_EQ(codes(), (Codes{1, 1, 1}));
  EXPECT_EQ(count_of(all_, "error: two processes say that they are rank 1: process "), 3) << all_;
}

TEST_F(JobByHand, PortInUse) {
  const Port port;
  start("ok", 0, 2, {"--master-port", port.text()});
  EXPECT_EQ(codes(), (Codes{1}));
  EXPECT_TRUE(ranks_[0]->contains("error: ") && ranks_[0]->contains(port.text())) << all_;
  EXPECT_EQ(count_of(all_, "\n"), 1) << all_;
}

TEST_F(JobByHand, MasterThatCannotBeReached) {
  const std::string port = free_port();
  start("ok", 1, 2, {"--master-port", port, "--timeout", "0.5"});
  start("ok", 1, 2, {"--master-addr", "no-such-host.invalid", "--timeout", "0.5"});
  EXPECT_EQ(codes(), (Codes{1, 1}));
  EXPECT_EQ(count_of(output(0), "error: no store at 127.0.0.1:" + port), 1) << all_;
  EXPECT_EQ(count_of(output(1), "error: "), 1) << all_;
  EXPECT_TRUE(ranks_[1]->contains("no-such-host.invalid")) << all_;
}

TEST_F(JobByHand, RankThatNeverArrives) {
  Arguments where = at_port();
  where.insert(where.end(), {"--timeout", "1.5"});
  for (const int rank : {0, 2}) start("ok", rank, 4, where);
  EXPECT_EQ(codes(), (Codes{1, 1}));
  EXPECT_EQ(count_of(all_, "error: ranks 1 and 3 never arrived at 127.0.0.1:" + where[1]), 2)
      << all_;
}

TEST_F(JobByHand, RankKilledAtTheRendezvous) {
  const Arguments where = at_port();
  start("ok", 0, 3, where);
  ProgramRun& victim = start("ok", 1, 3, where);
  ranks_[0]->wait_for("rank 0 waits for rank 2");
  victim.send_signal(SIGKILL);
  EXPECT_EQ(codes(), (Codes{1, 128 + SIGKILL}));
  EXPECT_EQ(count_of(output(0), "error: rank 1 (process "), 1) << all_;
  EXPECT_TRUE(ranks_[0]->contains(") has ended before all ranks had arrived\n")) << all_;
}

TEST_F(JobByHand, AnotherWorldSizeThanRankZeros) {
  const Arguments where = at_port();
  start("ok", 0, 3, where);
  start("ok", 1, 4, where);
  EXPECT_EQ(codes(), (Codes{1, 1}));
  EXPECT_EQ(count_of(all_, "error: rank 1 was started with world size 4, but rank 0 with 3\n"), 2)
      << all_;
}

TEST_F(JobByHand, RanksThatDisagree) {
  start_all("disagree", 3, at_port(), 2);
  EXPECT_EQ(codes(), (Codes{1, 1, 1}));
  EXPECT_EQ(count_of(all_,
                     "error: the ranks disagree about the corpus: rank 0 has stories.txt, rank 2 "
                     "has my own stories\n"),
            3)
      << all_;
}

TEST_F(JobByHand, RankKilledInABigAllReduce) {
  start_all("kill_in_all_reduce", 3, at_port());
  const Codes ends = codes();
  EXPECT_EQ(ends[1], 128 + SIGKILL);
  EXPECT_NE(ends[0], 0);
  EXPECT_NE(ends[2], 0);
  EXPECT_TRUE(ranks_[0]->contains("error: rank 1 ")) << all_;
  EXPECT_TRUE(ranks_[0]->contains("all_reduce #")) << all_;
}

TEST_F(JobByHand, RankKilledInSend) {
  start_all("kill_in_send", 2, at_port());
  EXPECT_EQ(codes()[1], 128 + SIGKILL);
  EXPECT_TRUE(ranks_[0]->contains("error: rank 1 ")) << all_;
  EXPECT_TRUE(ranks_[0]->contains("recv(from 1")) << all_;
}

TEST_F(JobByHand, RankZeroKilledInABigAllReduce) {
  start_all("kill_in_all_reduce", 3, at_port(), 0);
  const Codes ends = codes();
  EXPECT_EQ(ends[0], 128 + SIGKILL);
  for (const size_t rank : {1U, 2U}) {
    EXPECT_NE(ends[rank], 0);
    EXPECT_NE(ends[rank], 128 + SIGKILL);
    EXPECT_EQ(count_of(output(rank), "error: "), 1) << output(rank);
    EXPECT_TRUE(ranks_[rank]->contains("all_reduce #")) << output(rank);
    EXPECT_TRUE(ranks_[rank]->contains("rank 0")) << output(rank);
  }
}

TEST_F(JobByHand, StoppedRank) {
  start_all("stop", 3, at_port(), 2);
  EXPECT_EQ(ranks_[0]->wait(kSoon), kDiagnosedExit) << output(0);
  EXPECT_EQ(count_of(output(0), "error: rank 2 is stopped"), 1) << output(0);
  EXPECT_EQ(ranks_[1]->wait(kSoon), kDiagnosedExit) << output(1);
  EXPECT_EQ(count_of(output(1), "rank 1 ends: rank 2 is stopped"), 1) << output(1);
  ranks_[2]->send_signal(SIGCONT);
  EXPECT_NE(codes()[2], 0) << all_;
}

TEST_F(JobByHand, RankZeroStopped) {
  start_all("stop", 2, at_port(), 0);
  EXPECT_EQ(ranks_[1]->wait(kSoon), kDiagnosedExit) << output(1);
  EXPECT_EQ(count_of(output(1), "error: rank 0 is gone (its process "), 1) << output(1);
  EXPECT_TRUE(ranks_[1]->contains("while rank 1 waited in barrier #2")) << output(1);
  ranks_[0]->send_signal(SIGCONT);
  EXPECT_NE(codes()[0], 0) << all_;
}

/// The job waits longer for a rank that is at a breakpoint than for a silent one.
class JobInADebugger : public JobByHand {
 protected:
  void expect_patience(size_t held) {
    start_all("interrupted", 3, at_port());
    for (const auto& rank : ranks_) rank->wait_for("ready");
    {
      const HeldProcess hold(ranks_[held]->pid());
      if (!hold.possible()) GTEST_SKIP() << "this system does not let a program be traced";
      std::this_thread::sleep_for(Judge::kSilence + std::chrono::seconds(4));
    }
    std::this_thread::sleep_for(std::chrono::seconds(2));  // for a late judgement
    ranks_[held]->send_signal(SIGINT);
    EXPECT_EQ(codes(), (Codes{130, 130, 130})) << all_;
    EXPECT_EQ(count_of(all_, "saved"), 3) << all_;
  }
};

TEST_F(JobInADebugger, WaitsForARank) { expect_patience(1); }
TEST_F(JobInADebugger, WaitsForRankZero) { expect_patience(0); }

TEST_F(JobByHand, RankThatEndsTooEarlyWithoutAnError) {
  start_all("exit_without_a_word", 3, in_folder());
  const Codes ends = codes();
  EXPECT_EQ(ends[1], 0);
  EXPECT_NE(ends[0], 0) << all_;
  EXPECT_NE(ends[2], 0) << all_;
  EXPECT_TRUE(ranks_[0]->contains("rank 1")) << all_;
}

TEST_F(JobByHand, RankThatLeavesTooEarly) {
  start_all("return_early", 3, at_port(), 0);
  for (const int code : codes()) EXPECT_NE(code, 0) << all_;
  EXPECT_EQ(count_of(output(0), "error: rank 0 has left the job while rank"), 1) << all_;
}

TEST_F(JobByHand, RankWithAnErrorOfItsOwn) {
  start_all("throw_error", 3, at_port());
  EXPECT_EQ(codes(), (Codes{kDiagnosedExit, 1, kDiagnosedExit})) << all_;
  EXPECT_EQ(output(1), "error: the disk is full\n");
  EXPECT_EQ(count_of(all_, "rank 1 has ended with an error of its own\n"), 2) << all_;
}

TEST_F(JobByHand, RankZeroWithAnErrorOfItsOwn) {
  start_all("throw_error", 3, at_port(), 0);
  EXPECT_EQ(codes(), (Codes{1, kDiagnosedExit, kDiagnosedExit})) << all_;
  EXPECT_EQ(output(0), "error: the disk is full\n");
  EXPECT_EQ(count_of(all_, "ends: rank 0 has ended with an error of its own\n"), 2) << all_;
}

/// The first program of that name in PATH; "" if there is none.
std::string find_program(const std::string& name) {
  const char* path = getenv("PATH");
  std::istringstream folders(path == nullptr ? "" : path);
  for (std::string folder; std::getline(folders, folder, ':');)
    if (access((folder + "/" + name).c_str(), X_OK) == 0) return folder + "/" + name;
  return "";
}

TEST(JobUnderMpirun, FindsItsRanksAndReportsADeadlock) {
  const std::string mpirun = find_program("mpirun");
  if (mpirun.empty()) GTEST_SKIP() << "mpirun is not installed (Debian: openmpi-bin)";
  const CleanPlace place;
  const auto run = [&](const std::string& scenario) {
    return std::make_unique<ProgramRun>(Arguments{mpirun, "--allow-run-as-root", "--oversubscribe",
                                                  "-n", "3", LAUNCH_CHILD, scenario, "--lock",
                                                  place.lock()});
  };
  auto good = run("ok");
  EXPECT_EQ(good->wait(20), 0) << good->output();
  EXPECT_EQ(count_of(good->output(), "sum 6"), 3) << good->output();
  auto bad = run("deadlock");
  EXPECT_NE(bad->wait(20), 0);
  EXPECT_EQ(count_of(bad->output(), "circle: "), 1) << bad->output();
  place.expect_nothing_left();
}

TEST(JobUnderTorchrun, FindsItsRanks) {
  const std::string torchrun = find_program("torchrun");
  if (torchrun.empty()) GTEST_SKIP() << "torchrun is not installed (pip install torch)";
  const CleanPlace place;
  ProgramRun run({torchrun, "--standalone", "--no-python", "--nproc-per-node", "3", LAUNCH_CHILD,
                  "ok", "--lock", place.lock()});
  EXPECT_EQ(run.wait(60), 0) << run.output();
  EXPECT_EQ(count_of(run.output(), "sum 6"), 3) << run.output();
  place.expect_nothing_left();
}

}  // namespace
}  // namespace lab::job_test
