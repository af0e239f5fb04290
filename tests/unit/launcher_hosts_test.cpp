// One launcher on each of several hosts: they end together, and each says what it knows.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "common/run/launch/job.h"
#include "common/run/rendezvous/job_keys.h"
#include "tests/unit/free_port.h"
#include "tests/unit/launcher_fixture.h"
#include "tests/unit/program_run.h"

namespace lab::launcher_hosts_test {
namespace {

/// Two launchers on this machine, as if each were on its own host.
class SeveralHosts : public Launcher {
 protected:
  void start_hosts(const std::string& scenario, int ranks, int who = 1) {
    for (int host = 0; host < 2; ++host) {
      auto arguments = command(scenario, ranks, who);
      for (const std::string& argument :
           {std::string("--nnodes"), std::string("2"), std::string("--node-rank"),
            std::to_string(host), std::string("--master-addr"), std::string("127.0.0.1"),
            std::string("--master-port"), port_, std::string("--timeout"), std::string("20")})
        arguments.push_back(argument);
      hosts_.push_back(std::make_unique<ProgramRun>(arguments, place_.environment()));
    }
  }
  std::vector<int> codes() {
    std::vector<int> result;
    for (const auto& host : hosts_) result.push_back(host->wait(kSoon));
    place_.expect_nothing_left();
    return result;
  }
  const std::string& output(size_t host) const { return hosts_[host]->output(); }

  std::string port_ = free_port();
  std::vector<std::unique_ptr<ProgramRun>> hosts_;
};

using Codes = std::vector<int>;

TEST_F(SeveralHosts, HaveAnEqualShareOfTheRanks) {
  start_hosts("ok", 4);
  EXPECT_EQ(codes(), (Codes{0, 0})) << output(0) << output(1);
  for (int rank = 0; rank < 4; ++rank) {
    const std::string line = fmt::format("[{0}] rank {0} of 4: sum 10\n", rank);
    EXPECT_EQ(count_of(output(rank < 2 ? 0 : 1), line), 1) << output(0) << output(1);
  }
}

TEST_F(SeveralHosts, HaveTheirOwnCores) {
  const auto cores = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  start_hosts("say_threads", 4);
  EXPECT_EQ(codes(), (Codes{0, 0})) << output(0) << output(1);
  EXPECT_TRUE(hosts_[1]->contains(fmt::format("[3] threads {}\n", std::max(1, cores / 2))))
      << output(1);
}

TEST_F(SeveralHosts, HaveAFirstRankEach) {
  start_hosts("work_for_long", 4, /*who=*/0);
  EXPECT_EQ(codes(), (Codes{0, 0})) << output(0) << output(1);
  EXPECT_TRUE(hosts_[0]->contains("[0] worked\n")) << output(0);
  EXPECT_TRUE(hosts_[1]->contains("[2] worked\n")) << output(1);
  EXPECT_TRUE(hosts_[1]->contains("[3] waited\n")) << output(1);
}

TEST_F(SeveralHosts, ExplainADeadlockOnce) {
  start_hosts("deadlock", 4);
  EXPECT_EQ(codes(), (Codes{kDiagnosedExit, kDiagnosedExit}));
  EXPECT_EQ(count_of(output(0), "[0] error: deadlock: ranks 0, 1, 2 and 3 wait"), 1) << output(0);
  EXPECT_EQ(count_of(output(1), "rank 3 ends: deadlock: "), 1) << output(1);
  EXPECT_TRUE(hosts_[1]->contains(
      "\nerror: the job cannot go on, for the reason that ranks 2 and 3 gave above\n"))
      << output(1);
}

TEST_F(SeveralHosts, AllEndWithTheRankThatIsKilled) {
  start_hosts("end_by_signal", 4, 3);
  EXPECT_EQ(codes(), (Codes{kDiagnosedExit, 128 + SIGSEGV}));
  EXPECT_TRUE(hosts_[0]->contains("[0] error: rank 3 was killed (signal 11: SIGSEGV) while rank"))
      << output(0);
  EXPECT_TRUE(hosts_[1]->contains("\nerror: rank 3 was killed (signal 11: SIGSEGV)\n"))
      << output(1);
}

TEST_F(SeveralHosts, AllEndWithARankThatNeverComes) {
  start_hosts("kill_before_rendezvous", 4, 2);
  EXPECT_EQ(codes(), (Codes{1, 128 + SIGKILL}));
  EXPECT_TRUE(hosts_[0]->contains("] error: rank 2 has ended before all ranks had arrived\n"))
      << output(0);
  EXPECT_TRUE(hosts_[1]->contains("\nerror: rank 2 was killed (signal 9: SIGKILL)\n")) << output(1);
}

TEST_F(SeveralHosts, AllEndWithAnErrorOfARank) {
  start_hosts("throw_error", 4, 3);
  EXPECT_EQ(codes(), (Codes{kDiagnosedExit, 1}));
  EXPECT_EQ(count_of(output(1), "[3] error: the disk is full\n"), 1) << output(1);
  EXPECT_TRUE(hosts_[1]->contains("\nerror: rank 3 exited with code 1\n")) << output(1);
  EXPECT_TRUE(hosts_[0]->contains("rank 1 ends: rank 3 ")) << output(0);
}

TEST_F(SeveralHosts, CtrlCOnOneOfThemIsForAll) {
  start_hosts("interrupted", 4);
  for (const auto& host : hosts_) host->wait_for("ready");
  hosts_[1]->send_signal(SIGINT);
  EXPECT_EQ(codes(), (Codes{130, 130})) << output(0) << output(1);
  for (size_t host = 0; host < 2; ++host)
    EXPECT_EQ(count_of(output(host), "saved"), 2) << output(host);
  EXPECT_TRUE(hosts_[0]->contains("\nthe job was interrupted on another host\n")) << output(0);
}

}  // namespace
}  // namespace lab::launcher_hosts_test
