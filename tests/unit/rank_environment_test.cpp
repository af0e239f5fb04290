// Which rank a process is: command line, torchrun, mpirun, srun, and all that contradicts itself.
#include "common/run/rendezvous/rank_environment.h"

#include <gtest/gtest.h>

#include <string>

#include "common/run/options/main_guard.h"
#include "common/run/rendezvous/launcher_variables.h"
#include "tests/unit/rank_variables.h"

namespace lab::rank_environment_test {
namespace {

LaunchOptions by_hand(int rank, int world_size) {
  LaunchOptions options;
  options.rank = rank;
  options.world_size = world_size;
  return options;
}

struct Place {
  const char* name;
  Variables variables;
  int rank;
  int world_size;
  int local_rank;
  std::string master_addr;
};

class Places : public testing::TestWithParam<Place> {};

TEST_P(Places, AreUnderstood) {
  const Place& expected = GetParam();
  const RankEnvironment place = read_variables(expected.variables);
  EXPECT_EQ(place.rank, expected.rank);
  EXPECT_EQ(place.world_size, expected.world_size);
  EXPECT_EQ(place.local_rank, expected.local_rank);
  EXPECT_EQ(place.master_addr, expected.master_addr);
}

const Variables kTorchrun{{"RANK", "2"},
                          {"WORLD_SIZE", "3"},
                          {"LOCAL_RANK", "2"},
                          {"LOCAL_WORLD_SIZE", "3"},
                          {"MASTER_ADDR", "node.example"},
                          {"MASTER_PORT", "29400"},
                          {"TORCHELASTIC_RUN_ID", "none"},
                          {"TORCHELASTIC_RESTART_COUNT", "0"},
                          {"TORCHELASTIC_USE_AGENT_STORE", "True"}};
INSTANTIATE_TEST_SUITE_P(
    RankEnvironment, Places,
    testing::Values(
        Place{"Nothing", {}, 0, 1, 0, "127.0.0.1"},
        Place{"Variables", {{"RANK", "1"}, {"WORLD_SIZE", "2"}}, 1, 2, 1, "127.0.0.1"},
        Place{"LocalTorchrun", kTorchrun, 2, 3, 2, "127.0.0.1"},
        Place{"TorchrunOnTwoMachines", with(kTorchrun, {{"LOCAL_WORLD_SIZE", "2"}}), 2, 3, 2,
              "node.example"},
        Place{"TorchrunUnderSrun", with(kSrun, kTorchrun), 2, 3, 2, "127.0.0.1"},
        Place{"OpenMpi", kOpenMpi, 1, 2, 1, "127.0.0.1"},
        Place{"OpenMpiWithWorldSize", with(kOpenMpi, {{"WORLD_SIZE", "2"}}), 1, 2, 1, "127.0.0.1"},
        Place{"OpenMpiOnTwoMachines",
              with(kOpenMpi, {{"OMPI_COMM_WORLD_LOCAL_SIZE", "1"}, {"MASTER_ADDR", "10.0.0.1"}}), 1,
              2, 1, "10.0.0.1"},
        Place{"Mpich",
              {{"PMI_RANK", "1"},
               {"PMI_SIZE", "2"},
               {"MPI_LOCALRANKID", "0"},
               {"MPI_LOCALNRANKS", "2"},
               {"PMI_PORT", "host:4711"}},
              1,
              2,
              0,
              "127.0.0.1"},
        Place{"Srun", kSrun, 3, 4, 1, "gpu003"},
        Place{"SrunOnOneMachine", with(kSrun, {{"SLURM_STEP_NUM_NODES", "1"}}), 3, 4, 1,
              "127.0.0.1"},
        Place{"SrunWithOneTask",
              with(kSrun, {{"SLURM_STEP_NUM_TASKS", "1"}, {"SLURM_PROCID", "0"}}), 0, 1, 1,
              "127.0.0.1"},
        Place{"BatchScript", kBatchScript, 0, 1, 0, "127.0.0.1"},
        Place{"BatchStep", with(kBatchScript, {{"SLURM_STEP_ID", "4294967291"}}), 0, 1, 0,
              "127.0.0.1"}),
    [](const auto& place) { return place.param.name; });

TEST(RankEnvironment, ByHand) {
  LaunchOptions options = by_hand(1, 3);
  RankEnvironment place = read_variables({}, options);
  EXPECT_EQ(place.rank, 1);
  EXPECT_EQ(place.world_size, 3);
  EXPECT_EQ(place.local_rank, 1);
  EXPECT_EQ(place.master_addr, "127.0.0.1");
  EXPECT_EQ(place.bind_addr, "127.0.0.1");
  EXPECT_EQ(place.master_port, kDefaultMasterPort);
  EXPECT_EQ(place.timeout, std::chrono::seconds(600));
  EXPECT_FALSE(place.store_is_served);

  options.master_addr = "10.0.0.1";
  options.master_port = 4711;
  options.timeout_s = 1.5;
  place = read_variables({}, options);
  EXPECT_EQ(place.master_addr, "10.0.0.1");
  EXPECT_EQ(place.bind_addr, "");  // whichever leads there
  EXPECT_EQ(place.master_port, 4711);
  EXPECT_EQ(place.timeout, std::chrono::milliseconds(1500));
}

TEST(RankEnvironment, ByHandInOneTaskOfSrunOrBesideEqualVariables) {
  const Variables task = with(kSrun, {{"SLURM_STEP_NUM_TASKS", "1"}, {"SLURM_PROCID", "0"}});
  EXPECT_EQ(read_variables(task, by_hand(1, 3)).rank, 1);
  EXPECT_EQ(read_variables({{"RANK", "1"}, {"WORLD_SIZE", "3"}}, by_hand(1, 3)).rank, 1);
}

TEST(RankEnvironment, OwnLauncher) {
  const RankEnvironment place = read_variables(
      {{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_PORT", "4711"}, {kStoreServedVariable, "1"}},
      launching(2));
  EXPECT_TRUE(place.store_is_served);
  EXPECT_EQ(place.master_port, 4711);
}

TEST(RankEnvironment, TorchrunsOwnStoreKeepsItsPort) {
  const uint16_t port = read_variables(kTorchrun).master_port;
  EXPECT_GE(port, kFirstDerivedPort);
  EXPECT_LT(port, kFirstDerivedPort + kDerivedPorts);
  EXPECT_EQ(read_variables(with(kTorchrun, {{"RANK", "0"}, {"LOCAL_RANK", "0"}})).master_port,
            port);
  EXPECT_NE(read_variables(with(kTorchrun, {{"TORCHELASTIC_RESTART_COUNT", "1"}})).master_port,
            port);
  EXPECT_EQ(
      read_variables(with(kTorchrun, {{"TORCHELASTIC_USE_AGENT_STORE", "False"}})).master_port,
      29400);
  LaunchOptions options;
  options.master_port = 4711;
  EXPECT_EQ(read_variables(kTorchrun, options).master_port, 4711);
}

TEST(RankEnvironment, PortsOfMpirunAndSrunComeFromTheJob) {
  const uint16_t port = read_variables(kSrun).master_port;
  EXPECT_GE(port, kFirstDerivedPort);
  EXPECT_LT(port, kFirstDerivedPort + kDerivedPorts);
  EXPECT_EQ(read_variables(with(kSrun, {{"SLURM_PROCID", "0"}})).master_port, port);
  EXPECT_NE(read_variables(with(kSrun, {{"SLURM_STEP_ID", "1"}})).master_port, port);
  EXPECT_EQ(read_variables(with(kSrun, {{"MASTER_PORT", "4711"}})).master_port, 4711);
  EXPECT_NE(read_variables(kOpenMpi).master_port,
            read_variables(with(kOpenMpi, {{"PMIX_NAMESPACE", "1"}})).master_port);
}

TEST(RankEnvironment, FileStoreInPlaceOfAPort) {
  LaunchOptions options = by_hand(0, 2);
  options.store = "/shared/job";
  const RankEnvironment place = read_variables({{"MASTER_ADDR", "node"}}, options);
  EXPECT_EQ(place.store_folder, "/shared/job");
  EXPECT_EQ(place.bind_addr, "127.0.0.1");
}

TEST(RankEnvironment, UsageErrors) {
  const Variables pair{{"RANK", "0"}, {"WORLD_SIZE", "2"}};
  LaunchOptions options;
  EXPECT_EQ(usage_error({{"RANK", "1"}}),
            "the environment has RANK, but not WORLD_SIZE: set both or neither");
  EXPECT_EQ(usage_error({{"WORLD_SIZE", "2"}}),
            "the environment has WORLD_SIZE, but not RANK: set both or neither");
  EXPECT_EQ(usage_error({{"RANK", "one"}, {"WORLD_SIZE", "2"}}),
            "RANK='one' in the environment is not a whole number");
  EXPECT_EQ(usage_error({{"RANK", "0"}, {"WORLD_SIZE", "0"}}),
            "world size 0 (RANK and WORLD_SIZE): a job has at least one rank");
  EXPECT_EQ(usage_error({{"RANK", "0"}, {"WORLD_SIZE", "65"}}),
            "world size 65 (RANK and WORLD_SIZE): at most 64 ranks are possible");
  EXPECT_EQ(usage_error({{"RANK", "2"}, {"WORLD_SIZE", "2"}}),
            "rank 2 (RANK and WORLD_SIZE): with world size 2, ranks are numbered 0 to 1");
  EXPECT_EQ(usage_error({{"RANK", "-1"}, {"WORLD_SIZE", "2"}}),
            "rank -1 (RANK and WORLD_SIZE): with world size 2, ranks are numbered 0 to 1");
  EXPECT_EQ(usage_error({{"RANK", "99999999999999999999"}, {"WORLD_SIZE", "2"}}),
            "RANK='99999999999999999999' in the environment is not a whole number");
  EXPECT_EQ(usage_error(with(pair, {{"MASTER_PORT", "70000"}})),
            "MASTER_PORT=70000 in the environment: it must lie between 1 and 65535");
  EXPECT_EQ(usage_error({}, by_hand(3, 3)),
            "rank 3 (command line): with world size 3, ranks are numbered 0 to 2");
  options.rank = 1;
  EXPECT_EQ(usage_error({}, options), "--rank 1 needs --world-size");
  options = {};
  options.world_size = 3;
  EXPECT_EQ(usage_error({}, options), "--world-size 3 needs --rank");
  options = by_hand(0, 2);
  options.timeout_s = 0;
  EXPECT_EQ(usage_error({}, options), "--timeout 0: it must lie between 0.001 and 1000000 seconds");
}

TEST(RankEnvironment, Contradictions) {
  const Variables pair{{"RANK", "0"}, {"WORLD_SIZE", "2"}};
  LaunchOptions options = by_hand(1, 2);
  EXPECT_EQ(usage_error(pair, options),
            "--rank 1 --world-size 2 contradicts the environment: rank 0 of 2 by RANK and "
            "WORLD_SIZE");
  EXPECT_EQ(usage_error(kOpenMpi, by_hand(0, 2)),
            "--rank 0 --world-size 2 contradicts the environment: rank 1 of 2 by mpirun");
  EXPECT_EQ(usage_error(with(kOpenMpi, pair)),
            "RANK and WORLD_SIZE says rank 0 of 2, but mpirun says rank 1 of 2: unset the "
            "variables of one");
  EXPECT_EQ(usage_error(with(kOpenMpi, {{"WORLD_SIZE", "3"}})),
            "WORLD_SIZE=3 contradicts mpirun, which has started 2 ranks");
  EXPECT_EQ(usage_error(pair, launching(3)),
            "--ranks 3 contradicts the environment: world size 2 by RANK and WORLD_SIZE");
  options = by_hand(0, 2);
  options.master_addr = "a";
  EXPECT_EQ(usage_error({{"MASTER_ADDR", "b"}}, options),
            "--master-addr a contradicts MASTER_ADDR=b in the environment");
  options = by_hand(0, 2);
  options.master_port = 1;
  EXPECT_EQ(usage_error({{"MASTER_PORT", "2"}}, options),
            "--master-port 1 contradicts MASTER_PORT=2 in the environment");
  options.store = "folder";
  EXPECT_EQ(usage_error({}, options),
            "--store replaces --master-addr and --master-port: give one or the other");
  options = launching(2);
  options.rank = 0;
  EXPECT_EQ(usage_error({}, options),
            "--ranks starts all ranks, --rank and --world-size make this process one of them: give "
            "one or the other");
  options = launching(2);
  options.master_port = 4711;
  EXPECT_EQ(usage_error({}, options),
            "--ranks starts all ranks on this machine: leave out --master-addr, --master-port and "
            "--store");
}

TEST(RankEnvironment, WhatALauncherDoesNotSay) {
  Variables mpi = with(kOpenMpi, {{"OMPI_COMM_WORLD_LOCAL_SIZE", "1"}});
  EXPECT_EQ(usage_error(mpi),
            "MASTER_ADDR is not set, and mpirun has started ranks on several machines: set it to "
            "the address of rank 0's machine");
  mpi = kOpenMpi;
  mpi.erase("PMIX_NAMESPACE");
  EXPECT_EQ(usage_error(mpi),
            "MASTER_PORT is not set, and mpirun gives no job number to derive one from: set "
            "it to a port that is free on rank 0's machine");
}

TEST(RankEnvironment, FirstHostOfSlurmsList) {
  EXPECT_EQ(first_host("node7"), "node7");
  EXPECT_EQ(first_host("node7,node8"), "node7");
  EXPECT_EQ(first_host("node[003-005,007],login1"), "node003");
  EXPECT_EQ(first_host("rack[2,4]-node[1-2]"), "rack2-node1");
  EXPECT_EQ(first_host("node[003"), "");
  EXPECT_EQ(first_host(""), "");
}

}  // namespace
}  // namespace lab::rank_environment_test
