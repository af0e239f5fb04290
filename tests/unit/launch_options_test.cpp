// Which process starts ranks: --ranks, --nnodes, and the ranges of all options about ranks.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "common/run/options/command_line.h"
#include "common/run/options/main_guard.h"
#include "common/run/rendezvous/rank_environment.h"
#include "tests/unit/rank_variables.h"

namespace lab::launch_options_test {
namespace {

TEST(LaunchOptions, WhoLaunches) {
  EXPECT_FALSE(is_launcher({}, from({})));
  EXPECT_TRUE(is_launcher(launching(3), from({})));
  EXPECT_FALSE(is_launcher(launching(1), from({})));
  const Variables own{{"RANK", "0"}, {"WORLD_SIZE", "3"}};
  EXPECT_FALSE(is_launcher(launching(3), from(own)));
  EXPECT_THROW(is_launcher(launching(2), from(own)), UsageError);
  EXPECT_TRUE(is_launcher(launching(3), from(kBatchScript)));
  const Variables task = with(kSrun, {{"SLURM_STEP_NUM_TASKS", "1"}, {"SLURM_PROCID", "0"}});
  EXPECT_TRUE(is_launcher(launching(3), from(task)));
}

LaunchOptions on_host(int node_rank, int nnodes, int ranks) {
  LaunchOptions options = launching(ranks);
  options.nnodes = nnodes;
  options.node_rank = node_rank;
  options.master_addr = "10.0.0.1";
  return options;
}

TEST(LaunchOptions, SeveralHosts) {
  EXPECT_TRUE(is_launcher(on_host(1, 2, 6), from({})));
  EXPECT_TRUE(is_launcher(on_host(1, 2, 6), from(kBatchScript)));
  LaunchOptions one = launching(3);
  one.nnodes = 1;
  EXPECT_TRUE(is_launcher(one, from({})));
  // What its launcher has started is a rank, whether the program was told --ranks or knows itself.
  const Variables rank{{"RANK", "4"},           {"WORLD_SIZE", "6"},
                       {"LOCAL_RANK", "1"},     {"LOCAL_WORLD_SIZE", "3"},
                       {"MASTER_PORT", "4711"}, {"MASTER_ADDR", "10.0.0.1"}};
  for (const int ranks : {6, 0}) {
    const LaunchOptions options = on_host(1, 2, ranks);
    EXPECT_FALSE(is_launcher(options, from(rank)));
    const RankEnvironment place = read_variables(rank, options);
    EXPECT_EQ(place.rank, 4);
    EXPECT_EQ(place.local_rank, 1);
    EXPECT_EQ(place.master_addr, "10.0.0.1");
    EXPECT_EQ(place.bind_addr, "");  // whichever leads there
    EXPECT_EQ(place.master_port, 4711);
    EXPECT_FALSE(place.store_is_served);
  }
}

TEST(LaunchOptions, SeveralHostsThatMakeNoSense) {
  LaunchOptions options = launching(4);
  options.node_rank = 1;
  EXPECT_EQ(usage_error({}, options), "--node-rank 1 needs --nnodes: how many hosts there are");
  EXPECT_EQ(usage_error({}, on_host(2, 2, 4)),
            "--node-rank 2: with --nnodes 2, hosts are numbered 0 to 1");
  EXPECT_EQ(usage_error({}, on_host(-1, 2, 4)),
            "--nnodes 2 needs --node-rank: which of them this host is, from 0");
  EXPECT_EQ(usage_error({}, on_host(0, 3, 4)),
            "4 ranks on --nnodes 3: not the same number on every host; change one");
  options = on_host(0, 2, 4);
  options.master_addr = "";
  EXPECT_EQ(usage_error({}, options),
            "--nnodes 2 needs --master-addr: host 0's address, the same on every host");
  options = on_host(0, 2, 4);
  options.store = "folder";
  EXPECT_EQ(usage_error({}, options),
            "--nnodes 2: the hosts meet at --master-addr; leave out --store");
  options = on_host(0, 2, 0);
  options.rank = 0;
  options.world_size = 4;
  EXPECT_EQ(
      usage_error({}, options),
      "--nnodes starts this host's ranks, --rank and --world-size make this process one rank: "
      "give one or the other");
  try {
    is_launcher(on_host(0, 2, 0), from({}));
    ADD_FAILURE() << "no error";
  } catch (const UsageError& error) {
    EXPECT_STREQ(error.what(),
                 "--nnodes 2 needs --ranks: how many there are on all hosts together");
  }
  EXPECT_EQ(usage_error(kOpenMpi, on_host(1, 2, 4)),
            "--ranks 4 contradicts the environment: world size 2 by mpirun");
}

std::string parse_error(const std::vector<std::string>& arguments) {
  LaunchOptions options;
  CommandLine app("test");
  add_launch_options(app, options);
  std::vector<const char*> argv{"program"};
  for (const std::string& argument : arguments) argv.push_back(argument.c_str());
  try {
    app.read(static_cast<int>(argv.size()), argv.data());
    return "no error";
  } catch (const UsageError& error) {
    return error.what();
  }
}

TEST(LaunchOptions, CommandLineRanges) {
  EXPECT_EQ(parse_error({"--rank", "0", "--world-size", "64"}), "no error");
  EXPECT_EQ(parse_error({"--ranks", "0"}),
            "--ranks: 0 does not lie between 1 and 64 (--help lists the options)");
  EXPECT_EQ(parse_error({"--world-size", "0"}),
            "--world-size: 0 does not lie between 1 and 64 (--help lists the options)");
  EXPECT_EQ(parse_error({"--rank", "-1"}),
            "--rank: -1 does not lie between 0 and 63 (--help lists the options)");
  EXPECT_EQ(parse_error({"--master-port", "65536"}),
            "--master-port: 65536 does not lie between 1 and 65535 (--help lists the options)");
}

}  // namespace
}  // namespace lab::launch_options_test
